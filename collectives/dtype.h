// What collectives compute with: types of elements, and reductions.
#ifndef PSRING_COLLECTIVES_DTYPE_H_
#define PSRING_COLLECTIVES_DTYPE_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace psring {

// The numbers are those of the C interface and of the wire.
enum class DType {
  kUint8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,
  kBfloat16 = 6,
  kFloat32 = 7,
  kFloat64 = 8,
  kBool = 9,  // a byte; any value but 0 is true
};
inline constexpr int kNumDTypes = 10;

enum class Reduction {
  kSum = 0,
  kAverage = 1,
  kMin = 2,
  kMax = 3,
  kProduct = 4,
};
inline constexpr int kNumReductions = 5;

int64_t SizeOf(DType dtype);
bool IsFloating(DType dtype);
absl::string_view NameOf(DType dtype);  // "float32"
absl::string_view NameOf(Reduction reduction);

}  // namespace psring

#endif  // PSRING_COLLECTIVES_DTYPE_H_
