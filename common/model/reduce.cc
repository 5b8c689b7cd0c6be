#include "common/model/reduce.h"

#include "absl/container/inlined_vector.h"
#include "common/model/target_clones.h"

namespace psring {
namespace {

UnalignedFloat* At(void* data, int64_t offset) {
  return static_cast<UnalignedFloat*>(data) + offset;
}
const UnalignedFloat* At(const void* data, int64_t offset) {
  return static_cast<const UnalignedFloat*>(data) + offset;
}

// All loops are elementwise: memory that is the same float is no dependency
// between iterations, which "ivdep" says. Buffers are equal or disjoint.

// 64 bytes: a cache line, and a register of the widest instruction set.
// Narrower ones take several registers for it.
constexpr int64_t kLine = 16;
typedef float Line
    __attribute__((vector_size(kLine * sizeof(float)), aligned(1), may_alias));

// outs[j][i] = scale * (inputs[0][i] + inputs[1][i] + ...), line by line: a
// line of every input is in registers when the first output is written, so that
// everything passes through the core once.
PSRING_TARGET_CLONES
void SumLoop(const void* const* inputs, int num_inputs, float scale,
             void* const* outs, int num_outs, int64_t n) {
  int64_t i = 0;
  for (; i + kLine <= n; i += kLine) {
    Line sum = *reinterpret_cast<const Line*>(At(inputs[0], i));
    for (int k = 1; k < num_inputs; ++k) {
      sum += *reinterpret_cast<const Line*>(At(inputs[k], i));
    }
    sum *= scale;
    for (int k = 0; k < num_outs; ++k) {
      *reinterpret_cast<Line*>(At(outs[k], i)) = sum;
    }
  }
  for (; i < n; ++i) {
    float sum = *At(inputs[0], i);
    for (int k = 1; k < num_inputs; ++k) sum += *At(inputs[k], i);
    sum *= scale;
    for (int k = 0; k < num_outs; ++k) *At(outs[k], i) = sum;
  }
}

}  // namespace

PSRING_TARGET_CLONES
void AddInto(void* accumulator, const void* values, int64_t num_elements) {
  UnalignedFloat* out = At(accumulator, 0);
  const UnalignedFloat* in = At(values, 0);
#pragma GCC ivdep
  for (int64_t i = 0; i < num_elements; ++i) out[i] = out[i] + in[i];
}

PSRING_TARGET_CLONES
void Scale(void* data, float scale, int64_t num_elements) {
  UnalignedFloat* out = At(data, 0);
#pragma GCC ivdep
  for (int64_t i = 0; i < num_elements; ++i) out[i] = out[i] * scale;
}

void CanonicalSum(Range bucket, Range range,
                  absl::Span<const void* const> inputs, float scale,
                  float* out) {
  CanonicalSumToAll(bucket, range, inputs, scale, {&out, 1});
}

void CanonicalSumToAll(Range bucket, Range range,
                       absl::Span<const void* const> inputs, float scale,
                       absl::Span<float* const> outs) {
  const int n = static_cast<int>(inputs.size());
  absl::InlinedVector<const void*, 16> from(inputs.size());
  absl::InlinedVector<void*, 16> to(outs.size());
  for (int c = 0; c < n; ++c) {
    const Range part = Intersect(NearEqualPart(bucket, n, c), range);
    if (part.empty()) continue;
    const int64_t offset = part.begin - range.begin;
    for (int i = 0; i < n; ++i) from[i] = At(inputs[(c + 1 + i) % n], offset);
    for (size_t i = 0; i < outs.size(); ++i) to[i] = At(outs[i], offset);
    SumLoop(from.data(), n, scale, to.data(), static_cast<int>(to.size()),
            part.size());
  }
}

}  // namespace psring
