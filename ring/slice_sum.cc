#include "ring/slice_sum.h"

#include <utility>

#include "common/model/reduce.h"

namespace psring {

SliceSum::SliceSum(Range slice, int n, int rank)
    : slice_(slice),
      n_(n),
      rank_(rank),
      segments_((slice.size() + kSegmentElements - 1) / kSegmentElements) {
  for (Parts& parts : segments_) {
    parts.values.resize(n);
    parts.num_missing = n - 1;
  }
}

std::optional<Frame> SliceSum::Add(int from, Range segment, Frame values,
                                   const float* own, float scale) {
  Parts& parts = segments_[(segment.begin - slice_.begin) / kSegmentElements];
  parts.values[from] = std::move(values);
  if (--parts.num_missing > 0) return std::nullopt;
  Frame sum = std::move(parts.values[(rank_ + 1) % n_]);
  for (int i = 2; i < n_; ++i) {
    Frame& next = parts.values[(rank_ + i) % n_];
    AddInto(sum.data(), next.data(), segment.size());
    next = Frame();
  }
  AddInto(sum.data(), own, segment.size());
  Scale(sum.data(), scale, segment.size());
  parts.num_missing = n_ - 1;
  return sum;
}

}  // namespace psring
