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

class RankSchedule {
 public:
  // The segments of one route that come to the rank at one visit.
  struct Inflow {
    int route = 0;
    int visit = 0;
    int from = 0;      // the rank that sends them
    int64_t next = 0;  // the first element that has not come
  };

  RankSchedule(std::vector<Route> routes, int rank);

  const std::vector<Route>& routes() const { return routes_; }
  // Those that start at the rank, without waiting; by index.
  const std::vector<int>& starts() const { return starts_; }
  // Those that start at the rank once it has a sum.
  const std::vector<int>& waiting() const { return waiting_; }

  // Nothing has come yet.
  void Reset();
  // The inflow of which this segment is the next; null: it is not due. All
  // arguments may come from a stranger.
  Inflow* Due(int route, int visit, int from, Range segment);
  // The segment that was due has come.
  void Take(Inflow& inflow, Range segment) {
    inflow.next = segment.end;
    num_missing_ -= segment.size();
  }
  // All has come.
  bool complete() const { return num_missing_ == 0; }
  // The rank whose segments are missing; -1: nobody's.
  int awaited() const;

 private:
  std::vector<Route> routes_;
  std::vector<int> starts_;
  std::vector<int> waiting_;
  std::vector<Inflow> inflows_;  // by route and visit
  int64_t num_missing_ = 0;      // elements
};

}  // namespace psring

#endif  // PSRING_RING_RANK_SCHEDULE_H_
