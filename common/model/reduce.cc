#include "common/model/reduce.h"

#include <algorithm>

#include "common/model/target_clones.h"

namespace psring {
namespace {

// A tile's sum (16 KiB) stays in the first-level cache while the ranks' inputs
// stream past it.
constexpr int64_t kTileElements = 4096;

// All loops are elementwise: memory that is the same float is no dependency
// between iterations, which "ivdep" says. Buffers are equal or disjoint.

PSRING_TARGET_CLONES
void AddLoop(UnalignedFloat* out, const UnalignedFloat* a,
             const UnalignedFloat* b, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] + b[i];
}

PSRING_TARGET_CLONES
void AddScaleLoop(UnalignedFloat* out, const UnalignedFloat* a,
                  const UnalignedFloat* b, float scale, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = (a[i] + b[i]) * scale;
}

PSRING_TARGET_CLONES
void ScaleLoop(UnalignedFloat* out, const UnalignedFloat* a, float scale,
               int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = a[i] * scale;
}

UnalignedFloat* At(void* data, int64_t offset) {
  return static_cast<UnalignedFloat*>(data) + offset;
}
const UnalignedFloat* At(const void* data, int64_t offset) {
  return static_cast<const UnalignedFloat*>(data) + offset;
}

// out[i] = scale * sum of inputs[first], inputs[first + 1], ... (mod N) over n
// <= kTileElements elements from `offset` on. All inputs are read before `out`,
// which may be one of them, is written.
void SumTile(absl::Span<const void* const> inputs, size_t first, int64_t offset,
             int64_t n, float scale, float* out) {
  const auto input = [&](size_t i) {
    return At(inputs[(first + i) % inputs.size()], offset);
  };
  const size_t last = inputs.size() - 1;
  if (last == 0) return ScaleLoop(At(out, offset), input(0), scale, n);
  UnalignedFloat tile[kTileElements];
  const UnalignedFloat* sum = input(0);
  for (size_t i = 1; i < last; ++i) {
    AddLoop(tile, sum, input(i), n);
    sum = tile;
  }
  AddScaleLoop(At(out, offset), sum, input(last), scale, n);
}

}  // namespace

void AddInto(void* accumulator, const void* values, int64_t num_elements) {
  AddLoop(At(accumulator, 0), At(accumulator, 0), At(values, 0), num_elements);
}

void Scale(void* data, float scale, int64_t num_elements) {
  ScaleLoop(At(data, 0), At(data, 0), scale, num_elements);
}

void CanonicalSum(Range bucket, Range range,
                  absl::Span<const void* const> inputs, float scale,
                  float* out) {
  const int n = static_cast<int>(inputs.size());
  for (int c = 0; c < n; ++c) {
    const Range part = Intersect(NearEqualPart(bucket, n, c), range);
    for (int64_t begin = part.begin; begin < part.end; begin += kTileElements) {
      const int64_t size = std::min(kTileElements, part.end - begin);
      SumTile(inputs, c + 1, begin - range.begin, size, scale, out);
    }
  }
}

}  // namespace psring
