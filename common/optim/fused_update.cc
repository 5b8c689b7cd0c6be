#include "common/optim/fused_update.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/container/inlined_vector.h"
#include "common/model/reduce.h"
#include "common/model/stream_copy.h"

namespace psring {
namespace {

// From 4 MiB on a bucket's copies go past the caches: they are not read before
// the next forward pass has gone through all that the caches could hold.
constexpr int64_t kStreamElements = 1 << 20;

}  // namespace

void SumAndUpdate(const Optimizer& optimizer, Range bucket, Range range,
                  absl::Span<const void* const> gradients, float scale,
                  int64_t count, absl::Span<const double> rates,
                  float* parameters, absl::Span<float* const> slots,
                  absl::Span<float* const> copies, int64_t origin) {
  constexpr int64_t kTile = 4096;
  const bool stream = bucket.size() >= kStreamElements;
  alignas(64) std::array<float, kTile> sum;
  absl::InlinedVector<const void*, 16> tile_gradients(gradients.size());
  absl::InlinedVector<float*, 16> tile_slots(slots.begin(), slots.end());
  for (int64_t done = 0; done < range.size(); done += kTile) {
    const Range tile{range.begin + done,
                     std::min(range.begin + done + kTile, range.end)};
    for (size_t i = 0; i < gradients.size(); ++i) {
      tile_gradients[i] =
          static_cast<const char*>(gradients[i]) + done * sizeof(float);
    }
    CanonicalSumToAll(bucket, tile, tile_gradients, scale, {sum.data()});
    optimizer.Update(count, rates, sum.data(), parameters + done, tile_slots,
                     {origin + tile.begin, origin + tile.end});
    for (float*& slot : tile_slots) slot += tile.size();
    for (float* copy : copies) {
      if (stream) {
        StreamCopy(copy + done, parameters + done, tile.size());
      } else {
        std::memcpy(copy + done, parameters + done,
                    tile.size() * sizeof(float));
      }
    }
  }
}

}  // namespace psring
