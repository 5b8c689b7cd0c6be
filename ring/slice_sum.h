// The sum of a slice to which every rank sends its own values, segment by
// segment: they come in any order of ranks and are added in the canonical one
// (common/model/reduce.h) when the last of a segment has come.
#ifndef PSRING_RING_SLICE_SUM_H_
#define PSRING_RING_SLICE_SUM_H_

#include <optional>
#include <vector>

#include "common/model/layout.h"
#include "common/net/socket.h"

namespace psring {

// One thread's own.
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

}  // namespace psring

#endif  // PSRING_RING_SLICE_SUM_H_
