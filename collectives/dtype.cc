#include "collectives/dtype.h"

namespace psring {
namespace {

struct Properties {
  absl::string_view name;
  int64_t size;
  bool floating;
};

// By DType.
constexpr Properties kProperties[kNumDTypes] = {
    {"uint8", 1, false},   {"int8", 1, false},   {"int16", 2, false},
    {"int32", 4, false},   {"int64", 8, false},  {"float16", 2, true},
    {"bfloat16", 2, true}, {"float32", 4, true}, {"float64", 8, true},
    {"bool", 1, false},
};

constexpr absl::string_view kReductions[kNumReductions] = {
    "sum", "average", "min", "max", "product"};

const Properties& Of(DType dtype) {
  return kProperties[static_cast<int>(dtype)];
}

}  // namespace

int64_t SizeOf(DType dtype) { return Of(dtype).size; }

bool IsFloating(DType dtype) { return Of(dtype).floating; }

absl::string_view NameOf(DType dtype) { return Of(dtype).name; }

absl::string_view NameOf(Reduction reduction) {
  return kReductions[static_cast<int>(reduction)];
}

}  // namespace psring
