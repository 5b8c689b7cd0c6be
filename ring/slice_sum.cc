#include "ring/slice_sum.h"

#include <algorithm>
#include <cstring>
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

BucketSum::BucketSum(int64_t num_elements, int n, int rank)
    : bucket_{0, num_elements}, n_(n), rank_(rank), values_(n * num_elements) {
  for (int known = 1; known < n; known *= 2) come_.push_back(false);
}

void BucketSum::Begin(const float* data) {
  std::copy(data, data + bucket_.size(), values_.begin());
  std::fill(come_.begin(), come_.end(), false);
  rounds_ = 0;
}

void BucketSum::Add(int round, const Frame& values) {
  std::memcpy(values_.data() + (int64_t{1} << round) * bucket_.size(),
              values.data(), values.size());
  come_[round] = true;
  while (!complete() && come_[rounds_]) ++rounds_;
}

absl::string_view BucketSum::Known(int64_t num_elements) const {
  return {reinterpret_cast<const char*>(values_.data()),
          num_elements * sizeof(float)};
}

void BucketSum::Finish(float* data, float scale) const {
  std::vector<const void*> inputs(n_);
  for (int i = 0; i < n_; ++i) {
    inputs[(rank_ + i) % n_] = values_.data() + i * bucket_.size();
  }
  CanonicalSum(bucket_, bucket_, inputs, scale, data);
}

}  // namespace psring
