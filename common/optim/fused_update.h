// Sum, optimizer and copies in one pass over memory.
#ifndef PSRING_COMMON_OPTIM_FUSED_UPDATE_H_
#define PSRING_COMMON_OPTIM_FUSED_UPDATE_H_

#include <cstdint>

#include "absl/types/span.h"
#include "common/model/layout.h"
#include "common/optim/optimizer.h"

namespace psring {

// One update, the `count`-th (from 1), of `range`, a part of `bucket`: by the
// canonical sum of `gradients` times `scale`, at `rates` (see Optimizer). Both
// ranges count from the flat model's element `origin`. The new
// parameters are written to every one of `copies` too. All pointers are to
// range.begin, on 64 bytes; only gradients need no alignment. It goes tile by
// tile, so that what one part leaves is still in the cache when the next reads
// it. The bits are those of CanonicalSum and Optimizer::Update.
void SumAndUpdate(const Optimizer& optimizer, Range bucket, Range range,
                  absl::Span<const void* const> gradients, float scale,
                  int64_t count, absl::Span<const double> rates,
                  float* parameters, absl::Span<float* const> slots,
                  absl::Span<float* const> copies, int64_t origin = 0);

}  // namespace psring

#endif  // PSRING_COMMON_OPTIM_FUSED_UPDATE_H_
