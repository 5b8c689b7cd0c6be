// One rank's part of a collective: which routes start at it, and which segments
// come to it, in which order. Made once for every kind and size of collective,
// as nothing in it depends on the data. Pure.
#ifndef PSRING_RING_RANK_SCHEDULE_H_
#define PSRING_RING_RANK_SCHEDULE_H_

#include <cstdint>
#include <vector>

#include "common/model/layout.h"
#include "ring/routes.h"

namespace psring {

// A visit of a route to the rank. Of the others nothing is kept: with 1,000
// ranks those of all routes are 2 million.
struct RankVisit {
  int route = 0;  // among all routes of the collective
  int visit = 0;  // on the route; 0: it starts here
  Range range;    // of the route, as the next one
  bool apart = false;
  int from = -1;  // the rank that sends here; -1: it starts here
  int to = -1;    // the rank that is sent to; -1: it ends here
  Visit here;
  int64_t next = 0;  // the first element that has not come
};

class RankSchedule {
 public:
  RankSchedule(const std::vector<Route>& routes, int rank);

  // By route and visit.
  const std::vector<RankVisit>& visits() const { return visits_; }
  // Those with which a route starts, without waiting; by index.
  const std::vector<int>& starts() const { return starts_; }
  // Those with which a route starts once the rank has a sum.
  const std::vector<int>& waiting() const { return waiting_; }

  // Nothing has come yet.
  void Reset();
  // The visit of which this segment is the next; null: it is not due. All
  // arguments may come from a stranger.
  RankVisit* Due(int route, int visit, int from, Range segment);
  // The segment that was due has come.
  void Take(RankVisit& visit, Range segment) {
    visit.next = segment.end;
    num_missing_ -= segment.size();
  }
  // All has come.
  bool complete() const { return num_missing_ == 0; }
  // Elements that have not come.
  int64_t num_missing() const { return num_missing_; }
  // The rank whose segments are missing; -1: nobody's.
  int awaited() const;

 private:
  std::vector<RankVisit> visits_;
  std::vector<int> starts_;
  std::vector<int> waiting_;
  int64_t num_missing_ = 0;  // elements
};

}  // namespace psring

#endif  // PSRING_RING_RANK_SCHEDULE_H_
