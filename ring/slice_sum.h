// Sums of values that every rank sends apart: they come in any order of ranks
// and are added in the canonical one (common/model/reduce.h) when the last have
// come.
#ifndef PSRING_RING_SLICE_SUM_H_
#define PSRING_RING_SLICE_SUM_H_

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/model/layout.h"
#include "common/net/socket.h"

namespace psring {

// Of a slice, segment by segment. One thread's own.
class SliceSum {
 public:
  // `slice` is the one of `rank` in a ring of n ranks.
  SliceSum(Range slice, int n, int rank);

  // Rank `from`, not this one, has sent its `values` of `segment`, each once.
  // If they are the last: `scale` times the sum of all ranks' values, of which
  // `own`, from the segment's first element on, are this one's.
  std::optional<Frame> Add(int from, Range segment, Frame values,
                           const float* own, float scale);

 private:
  // What has come of a segment, by rank.
  struct Parts {
    std::vector<Frame> values;
    int num_missing = 0;
  };

  const Range slice_;
  const int n_;
  const int rank_;
  std::vector<Parts> segments_;
};

// Of a whole bucket, of which everybody gets all ranks' values, in rounds
// (EverybodyRoutes). One thread's own.
class BucketSum {
 public:
  BucketSum(int64_t num_elements, int n, int rank);

  // A sum begins with this rank's `data`. Drops what has come.
  void Begin(const float* data);
  // Round `round` has come, once; rounds come in any order.
  void Add(int round, const Frame& values);
  // How many rounds have come of which none before is missing: the values that
  // the next one sends are there.
  int rounds() const { return rounds_; }
  bool complete() const { return rounds_ == static_cast<int>(come_.size()); }
  // What is to be sent first, `num_elements` of it.
  absl::string_view Known(int64_t num_elements) const;
  // `data` becomes `scale` times the sum of all ranks'.
  void Finish(float* data, float scale) const;

 private:
  const Range bucket_;
  const int n_;
  const int rank_;
  std::vector<float> values_;  // this rank's, then of those behind it
  std::vector<bool> come_;     // by round
  int rounds_ = 0;
};

}  // namespace psring

#endif  // PSRING_RING_SLICE_SUM_H_
