#include "collectives/reduction.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

namespace psring {
namespace {

// Each type of element: what it is in memory, what is computed with, and the
// way between them.
template <typename T>
struct Plain {
  using Memory = T;
  using Value = T;
  static Value Load(T memory) { return memory; }
  static T Store(Value value) { return value; }
};

struct Bool {
  using Memory = uint8_t;
  using Value = uint8_t;
  static uint8_t Load(uint8_t memory) { return memory != 0; }
  static uint8_t Store(uint8_t value) { return value; }
};

struct Bfloat16 {
  using Memory = uint16_t;
  using Value = float;
  static float Load(uint16_t memory) {
    return std::bit_cast<float>(uint32_t{memory} << 16);
  }
  static uint16_t Store(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
    const uint32_t nan = ((bits >> 16) & 0x8000) | 0x7fc0;
    return static_cast<uint16_t>(value == value ? rounded : nan);
  }
};

// 10 bits behind the point, exponents from -14 on; below that multiples of
// 2^-24, which are the floats next to 0.5: an addition does the shift there.
struct Float16 {
  using Memory = uint16_t;
  using Value = float;
  static constexpr uint32_t kRebias = (127 - 15) << 23;
  static constexpr uint32_t kHalf = 0x3f000000;      // 0.5
  static constexpr uint32_t kNormal = 0x38800000;    // 2^-14
  static constexpr uint32_t kOverflow = 0x477ff000;  // 65520, a tie

  static float Load(uint16_t memory) {
    const uint32_t sign = (memory & 0x8000u) << 16;
    const uint32_t bits = memory & 0x7fffu;
    const uint32_t normal = (bits << 13) + kRebias;
    const uint32_t small = std::bit_cast<uint32_t>(
        std::bit_cast<float>(kHalf + (bits & 0x3ff)) - 0.5f);
    const uint32_t special = 0x7f800000 | bits << 13;
    const uint32_t finite = bits < 0x400 ? small : normal;
    return std::bit_cast<float>((bits < 0x7c00 ? finite : special) | sign);
  }
  static uint16_t Store(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value) & 0x7fffffff;
    const uint32_t sign = (std::bit_cast<uint32_t>(value) >> 16) & 0x8000;
    const uint32_t normal = (bits + 0xfff + ((bits >> 13) & 1) - kRebias) >> 13;
    const float tiny = std::bit_cast<float>(std::min(bits, kNormal));
    const uint32_t small = std::bit_cast<uint32_t>(tiny + 0.5f) - kHalf;
    const uint32_t finite = bits < kNormal ? small : normal;
    const uint32_t special = bits <= 0x7f800000 ? 0x7c00 : 0x7e00;
    return static_cast<uint16_t>((bits < kOverflow ? finite : special) | sign);
  }
};

template <typename V>
constexpr bool kIsFloating = std::is_floating_point_v<V>;

template <typename V>
bool IsNan(V value) {
  if constexpr (kIsFloating<V>) return value != value;
  return false;
}

// Integers wrap around, without the overflow of signed ones.
struct Sum {
  template <typename V>
  static V Of(V a, V b) {
    if constexpr (kIsFloating<V>) {
      return a + b;
    } else {
      return static_cast<V>(static_cast<uint64_t>(a) +
                            static_cast<uint64_t>(b));
    }
  }
};
struct Product {
  template <typename V>
  static V Of(V a, V b) {
    if constexpr (kIsFloating<V>) {
      return a * b;
    } else {
      return static_cast<V>(static_cast<uint64_t>(a) *
                            static_cast<uint64_t>(b));
    }
  }
};
// What is no number compares with nothing: it stays once it is there.
struct Min {
  template <typename V>
  static V Of(V a, V b) {
    return b < a || IsNan(b) ? b : a;
  }
};
struct Max {
  template <typename V>
  static V Of(V a, V b) {
    return b > a || IsNan(b) ? b : a;
  }
};

// Block by block, so that partial results stay in the first cache.
template <typename Type, typename Operation>
void ReduceAs(double prescale, double postscale,
              absl::Span<const void* const> inputs, int64_t num_elements,
              void* out) {
  using Memory = typename Type::Memory;
  using Value = typename Type::Value;
  constexpr int64_t kBlock = 1024;
  Memory memory[kBlock];
  Value values[kBlock];
  const Value before = static_cast<Value>(prescale);
  const Value after = static_cast<Value>(postscale);
  for (int64_t at = 0; at < num_elements; at += kBlock) {
    const int64_t n = std::min(kBlock, num_elements - at);
    const size_t bytes = static_cast<size_t>(n) * sizeof(Memory);
    const size_t offset = static_cast<size_t>(at) * sizeof(Memory);
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::memcpy(memory, static_cast<const char*>(inputs[i]) + offset, bytes);
      if (i == 0) {
        for (int64_t j = 0; j < n; ++j) {
          values[j] = static_cast<Value>(before * Type::Load(memory[j]));
        }
        continue;
      }
      for (int64_t j = 0; j < n; ++j) {
        values[j] = Operation::template Of<Value>(
            values[j], static_cast<Value>(before * Type::Load(memory[j])));
      }
    }
    for (int64_t j = 0; j < n; ++j) {
      memory[j] = Type::Store(static_cast<Value>(after * values[j]));
    }
    std::memcpy(static_cast<char*>(out) + offset, memory, bytes);
  }
}

template <typename Type>
void ReduceType(const Arithmetic& how, absl::Span<const void* const> inputs,
                int64_t n, void* out) {
  const double before = how.prescale;
  const double after = how.postscale;
  switch (how.reduction) {
    case Reduction::kSum:
      return ReduceAs<Type, Sum>(before, after, inputs, n, out);
    case Reduction::kAverage:
      return ReduceAs<Type, Sum>(
          before, after / static_cast<double>(inputs.size()), inputs, n, out);
    case Reduction::kMin:
      return ReduceAs<Type, Min>(before, after, inputs, n, out);
    case Reduction::kMax:
      return ReduceAs<Type, Max>(before, after, inputs, n, out);
    case Reduction::kProduct:
      return ReduceAs<Type, Product>(before, after, inputs, n, out);
  }
}

void ReduceBool(Reduction reduction, absl::Span<const void* const> inputs,
                int64_t n, void* out) {
  const bool any = reduction == Reduction::kSum || reduction == Reduction::kMax;
  if (any) return ReduceAs<Bool, Max>(1, 1, inputs, n, out);
  return ReduceAs<Bool, Min>(1, 1, inputs, n, out);
}

}  // namespace

void Reduce(const Arithmetic& how, absl::Span<const void* const> inputs,
            int64_t num_elements, void* out) {
  switch (how.dtype) {
    case DType::kUint8:
      return ReduceType<Plain<uint8_t>>(how, inputs, num_elements, out);
    case DType::kInt8:
      return ReduceType<Plain<int8_t>>(how, inputs, num_elements, out);
    case DType::kInt16:
      return ReduceType<Plain<int16_t>>(how, inputs, num_elements, out);
    case DType::kInt32:
      return ReduceType<Plain<int32_t>>(how, inputs, num_elements, out);
    case DType::kInt64:
      return ReduceType<Plain<int64_t>>(how, inputs, num_elements, out);
    case DType::kFloat16:
      return ReduceType<Float16>(how, inputs, num_elements, out);
    case DType::kBfloat16:
      return ReduceType<Bfloat16>(how, inputs, num_elements, out);
    case DType::kFloat32:
      return ReduceType<Plain<float>>(how, inputs, num_elements, out);
    case DType::kFloat64:
      return ReduceType<Plain<double>>(how, inputs, num_elements, out);
    case DType::kBool:
      return ReduceBool(how.reduction, inputs, num_elements, out);
  }
}

}  // namespace psring
