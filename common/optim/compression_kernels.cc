#include "common/optim/compression_kernels.h"

#include <algorithm>
#include <array>
#include <bit>

namespace psring {
namespace {

// Inlined into every clone of a loop.
#define PSRING_ELEMENT static inline __attribute__((always_inline))

// Of a float.
constexpr uint32_t kSign = 0x80000000;
constexpr uint32_t kInfinity = 0x7f800000;
constexpr uint32_t kNan = 0x7fc00000;

PSRING_ELEMENT uint32_t BitsOf(float value) {
  return std::bit_cast<uint32_t>(value);
}
PSRING_ELEMENT float FloatOf(uint32_t bits) {
  return std::bit_cast<float>(bits);
}
// As signed numbers magnitudes compare with every instruction set.
PSRING_ELEMENT int32_t MagnitudeOf(float value) {
  return static_cast<int32_t>(BitsOf(value) & ~kSign);
}

// Halves: 10 bits behind the point, exponents from -14 on, below that multiples
// of 2^-24, which are the floats next to 0.5.
constexpr uint32_t kHalfNormal = 0x38800000;  // 2^-14
constexpr uint32_t kHalfMax = 0x477fe000;     // 65504
constexpr uint32_t kHalfRebias = (127 - 15) << 23;

PSRING_ELEMENT float RoundToFp16(float value) {
  const uint32_t sign = BitsOf(value) & kSign;
  const uint32_t bits = BitsOf(value) ^ sign;
  const uint32_t rounded = (bits + 0xfff + ((bits >> 13) & 1)) & ~0x1fffu;
  const uint32_t normal = rounded < kHalfMax ? rounded : kHalfMax;
  const uint32_t small = BitsOf((FloatOf(bits) + 0.5f) - 0.5f);
  const uint32_t finite = bits < kHalfNormal ? small : normal;
  return FloatOf((bits < kInfinity ? finite : kNan) | sign);
}

PSRING_ELEMENT uint16_t Fp16Of(float value) {
  const uint32_t sign = BitsOf(value) & kSign;
  const uint32_t bits = BitsOf(value) ^ sign;
  const uint32_t normal = (bits - kHalfRebias) >> 13;
  // 2^-24 at 0.5: the sum's lowest bits count them.
  const uint32_t small = BitsOf(FloatOf(bits) + 0.5f) - BitsOf(0.5f);
  const uint32_t finite = bits < kHalfNormal ? small : normal;
  return static_cast<uint16_t>((bits < kInfinity ? finite : 0x7e00) |
                               (sign >> 16));
}

PSRING_ELEMENT float FloatOfFp16(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t bits = half & 0x7fffu;
  const uint32_t normal = (bits << 13) + kHalfRebias;
  const uint32_t small = BitsOf(FloatOf(BitsOf(0.5f) + bits) - 0.5f);
  const uint32_t finite = bits < 0x400 ? small : normal;
  return FloatOf((bits < 0x7c00 ? finite : kNan) | sign);
}

PSRING_ELEMENT float RoundToBf16(float value) {
  const uint32_t sign = BitsOf(value) & kSign;
  const uint32_t bits = BitsOf(value) ^ sign;
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) & ~0xffffu;
  const uint32_t finite = rounded < 0x7f7f0000 ? rounded : 0x7f7f0000;
  return FloatOf((bits < kInfinity ? finite : kNan) | sign);
}

// The residual of a value that is not finite is 0: kept, it would make all
// later gradients NaN.
PSRING_ELEMENT float FiniteOrZero(float value) {
  return (BitsOf(value) & kInfinity) != kInfinity ? value : 0.0f;
}

// |value| below 2^22: to the nearest integer, ties to even.
PSRING_ELEMENT float RoundToInteger(float value) {
  constexpr float kShift = 12582912.0f;  // 1.5 * 2^23
  return (value + kShift) - kShift;
}

// 2^(scale - 127), and its inverse.
PSRING_ELEMENT float PowerOf(int scale) {
  return FloatOf(static_cast<uint32_t>(scale) << 23);
}
PSRING_ELEMENT float InverseOf(int scale) { return PowerOf(254 - scale); }

// With it the magnitude is from 64 to 128; less for the smallest floats.
PSRING_ELEMENT int ScaleOf(int32_t magnitude) {
  const int field = magnitude >> 23;
  return field == 255 ? kNotFinite : std::max(field - 6, 1);
}

PSRING_TARGET_CLONES
int32_t LargestMagnitude(const float* values, int64_t n) {
  int32_t largest = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int32_t magnitude = MagnitudeOf(values[i]);
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest;
}

PSRING_TARGET_CLONES
void AddLoop(float* sum, const float* values, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) sum[i] += values[i];
}

PSRING_TARGET_CLONES
void QuantiseInt8Loop(float* gradients, float* residual, int scale, int64_t n) {
  const float inverse = InverseOf(scale);
  const float power = PowerOf(scale);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    float integer = RoundToInteger(residual[i] * inverse);
    integer = integer < 127.0f ? integer : 127.0f;
    integer = integer > -127.0f ? integer : -127.0f;
    gradients[i] = integer * power;
    residual[i] -= integer * power;
  }
}

PSRING_TARGET_CLONES
void EncodeInt8Loop(const float* values, int scale, int8_t* out, int64_t n) {
  const float inverse = InverseOf(scale);
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<int8_t>(static_cast<int32_t>(values[i] * inverse));
  }
}

PSRING_TARGET_CLONES
void DecodeInt8Loop(int scale, const int8_t* integers, UnalignedFloat* out,
                    int64_t n) {
  const float power = PowerOf(scale);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<float>(integers[i]) * power;
  }
}

constexpr int64_t kLanes = 8;

// By lane, so that the order of the sums does not depend on the instructions.
struct SignSums {
  std::array<double, kLanes> low = {};
  std::array<double, kLanes> high = {};
  int64_t num_low = 0;
};

// n is a multiple of kLanes.
PSRING_TARGET_CLONES
void SignSumsLoop(const float* values, int64_t n, SignSums* sums) {
  int64_t num_low = 0;
  for (int64_t i = 0; i < n; i += kLanes) {
    for (int64_t k = 0; k < kLanes; ++k) {
      const bool low = (BitsOf(values[i + k]) & kSign) != 0;
      const double value = values[i + k];
      sums->low[k] += low ? value : 0.0;
      sums->high[k] += low ? 0.0 : value;
      num_low += low ? 1 : 0;
    }
  }
  sums->num_low = num_low;
}

PSRING_TARGET_CLONES
void QuantiseOneBitLoop(OneBitMeans means, float* gradients, float* residual,
                        int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const bool low = (BitsOf(residual[i]) & kSign) != 0;
    const float mean = low ? means.low : means.high;
    gradients[i] = mean;
    residual[i] = FiniteOrZero(residual[i] - mean);
  }
}

OneBitMeans MeansOf(const float* values, int64_t n) {
  const int64_t whole = n / kLanes * kLanes;
  SignSums sums;
  SignSumsLoop(values, whole, &sums);
  for (int64_t i = whole; i < n; ++i) {
    const bool low = (BitsOf(values[i]) & kSign) != 0;
    (low ? sums.low : sums.high)[0] += values[i];
    sums.num_low += low ? 1 : 0;
  }
  double low = 0;
  double high = 0;
  for (int64_t k = 0; k < kLanes; ++k) {
    low += sums.low[k];
    high += sums.high[k];
  }
  const auto mean = [](double sum, int64_t count) {
    return static_cast<float>(sum /
                              static_cast<double>(std::max<int64_t>(count, 1)));
  };
  // Signs tell the two apart, even where a mean is 0 or no number.
  return {FloatOf(BitsOf(mean(low, sums.num_low)) | kSign),
          FloatOf(BitsOf(mean(high, n - sums.num_low)) & ~kSign)};
}

// The k-th largest magnitude, and how many of that magnitude are among the k.
struct Threshold {
  uint32_t magnitude = 0;
  int64_t num_equal = 0;
};

// Of a magnitude's 31 bits.
constexpr struct {
  int shift;
  int width;
} kDigits[] = {{20, 11}, {10, 10}, {0, 10}};

// Digit by digit from the highest one on, each found by a histogram of the
// values that have the digits above it.
Threshold KthLargest(const float* values, int64_t n, int64_t k) {
  Threshold threshold{0, k};
  uint32_t known = 0;
  for (const auto& [shift, width] : kDigits) {
    std::array<int64_t, 2048> counts = {};
    const uint32_t digit = (1u << width) - 1;
    for (int64_t i = 0; i < n; ++i) {
      const uint32_t magnitude = BitsOf(values[i]) & ~kSign;
      if ((magnitude & known) != threshold.magnitude) continue;
      ++counts[(magnitude >> shift) & digit];
    }
    uint32_t at = digit;
    while (counts[at] < threshold.num_equal)
      threshold.num_equal -= counts[at--];
    threshold.magnitude |= at << shift;
    known |= digit << shift;
  }
  return threshold;
}

}  // namespace

PSRING_TARGET_CLONES
void QuantiseFp16(float* gradients, float* residual, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float value = gradients[i] + residual[i];
    gradients[i] = RoundToFp16(value);
    residual[i] = FiniteOrZero(value - RoundToFp16(value));
  }
}

PSRING_TARGET_CLONES
void EncodeFp16(const float* values, UnalignedHalf* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = Fp16Of(values[i]);
}

PSRING_TARGET_CLONES
void DecodeFp16(const UnalignedHalf* bits, UnalignedFloat* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = FloatOfFp16(bits[i]);
}

PSRING_TARGET_CLONES
void QuantiseBf16(float* gradients, float* residual, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const float value = gradients[i] + residual[i];
    gradients[i] = RoundToBf16(value);
    residual[i] = FiniteOrZero(value - RoundToBf16(value));
  }
}

PSRING_TARGET_CLONES
void EncodeBf16(const float* values, UnalignedHalf* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    out[i] = static_cast<uint16_t>(BitsOf(values[i]) >> 16);
  }
}

PSRING_TARGET_CLONES
void DecodeBf16(const UnalignedHalf* bits, UnalignedFloat* out, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    out[i] = FloatOf(static_cast<uint32_t>(bits[i]) << 16);
  }
}

void QuantiseInt8(float* gradients, float* residual, int64_t n) {
  AddLoop(residual, gradients, n);
  const int scale = ScaleOf(LargestMagnitude(residual, n));
  if (scale == kNotFinite) {
    std::fill_n(gradients, n, FloatOf(kNan));
    std::fill_n(residual, n, 0.0f);
  } else {
    QuantiseInt8Loop(gradients, residual, scale, n);
  }
}

int EncodeInt8(const float* values, int8_t* out, int64_t n) {
  const int scale = ScaleOf(LargestMagnitude(values, n));
  if (scale == kNotFinite) {
    std::fill_n(out, n, int8_t{0});
  } else {
    EncodeInt8Loop(values, scale, out, n);
  }
  return scale;
}

void DecodeInt8(int scale, const int8_t* integers, UnalignedFloat* out,
                int64_t n) {
  if (scale == kNotFinite) {
    for (int64_t i = 0; i < n; ++i) out[i] = FloatOf(kNan);
  } else {
    DecodeInt8Loop(scale, integers, out, n);
  }
}

void QuantiseOneBit(float* gradients, float* residual, int64_t n) {
  AddLoop(residual, gradients, n);
  QuantiseOneBitLoop(MeansOf(residual, n), gradients, residual, n);
}

OneBitMeans EncodeOneBit(const float* values, uint8_t* out, int64_t n) {
  OneBitMeans means;
  std::fill_n(out, (n + 7) / 8, uint8_t{0});
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t low = BitsOf(values[i]) >> 31;
    (low != 0 ? means.low : means.high) = values[i];
    out[i / 8] |= static_cast<uint8_t>(low << (i % 8));
  }
  return means;
}

void DecodeOneBit(OneBitMeans means, const uint8_t* bits, UnalignedFloat* out,
                  int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    out[i] = (bits[i / 8] >> (i % 8)) & 1 ? means.low : means.high;
  }
}

void QuantiseTopK(float* gradients, float* residual, int64_t n, int64_t k) {
  AddLoop(residual, gradients, n);
  Threshold threshold = KthLargest(residual, n, k);
  for (int64_t i = 0; i < n; ++i) {
    const uint32_t magnitude = BitsOf(residual[i]) & ~kSign;
    const bool taken =
        magnitude > threshold.magnitude ||
        (magnitude == threshold.magnitude && threshold.num_equal-- > 0);
    // +0, not -0: that is what the others hold where nothing is sent.
    gradients[i] = taken && magnitude != 0 ? residual[i] : 0.0f;
    residual[i] = taken ? 0.0f : FiniteOrZero(residual[i]);
  }
}

}  // namespace psring
