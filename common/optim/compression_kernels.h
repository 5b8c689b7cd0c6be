// The loops of gradient compression. All instruction sets give the same bits.
//
// "Quantise": the values are gradients[i] + residual[i]; what the code makes of
// them replaces the gradients, what is lost the residual. A value that is not
// finite ends as one that is not, so that divergence is noticed.
#ifndef PSRING_COMMON_OPTIM_COMPRESSION_KERNELS_H_
#define PSRING_COMMON_OPTIM_COMPRESSION_KERNELS_H_

#include <cstdint>

#include "common/model/target_clones.h"

namespace psring {

typedef uint16_t UnalignedHalf __attribute__((aligned(1), may_alias));

// To the nearest, ties to even; beyond the largest finite value, to that one.
// Encoding takes values that quantising has made, and loses nothing.
void QuantiseFp16(float* gradients, float* residual, int64_t n);
void EncodeFp16(const float* values, UnalignedHalf* out, int64_t n);
void DecodeFp16(const UnalignedHalf* bits, UnalignedFloat* out, int64_t n);

void QuantiseBf16(float* gradients, float* residual, int64_t n);
void EncodeBf16(const float* values, UnalignedHalf* out, int64_t n);
void DecodeBf16(const UnalignedHalf* bits, UnalignedFloat* out, int64_t n);

// One block of int8: integers from -127 to 127 times a power of two, the least
// one, that of the largest magnitude, with which none is clipped by more than
// half a unit. Encoding finds it again from whatever part of the block it is
// given: every part's power divides the block's values. The result names it by
// a float's exponent field, or is kNotFinite.
constexpr int kNotFinite = 255;
constexpr int kMaxScale = 248;
void QuantiseInt8(float* gradients, float* residual, int64_t n);
int EncodeInt8(const float* values, int8_t* out, int64_t n);
// `scale`: from 1 to kMaxScale, or kNotFinite.
void DecodeInt8(int scale, const int8_t* integers, UnalignedFloat* out,
                int64_t n);

// One block of onebit: the mean of the values of either sign, that of negative
// ones (the sign bit counts) in `low`.
struct OneBitMeans {
  float low = -0.0f;
  float high = 0.0f;
};
void QuantiseOneBit(float* gradients, float* residual, int64_t n);
// Bit i % 8 of byte i / 8: the sign bit of value i; missing ones are 0.
OneBitMeans EncodeOneBit(const float* values, uint8_t* out, int64_t n);
void DecodeOneBit(OneBitMeans means, const uint8_t* bits, UnalignedFloat* out,
                  int64_t n);

// The k (from 1 to n) largest magnitudes; of equal ones the first. Others
// become 0. What is no number is larger than what is one.
void QuantiseTopK(float* gradients, float* residual, int64_t n, int64_t k);

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_COMPRESSION_KERNELS_H_
