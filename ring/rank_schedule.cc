#include "ring/rank_schedule.h"

#include <algorithm>
#include <utility>

namespace psring {

RankSchedule::RankSchedule(std::vector<Route> routes, int rank)
    : routes_(std::move(routes)) {
  for (int r = 0; r < static_cast<int>(routes_.size()); ++r) {
    const std::vector<Visit>& visits = routes_[r].visits;
    if (visits[0].agent == rank) {
      (routes_[r].waits ? waiting_ : starts_).push_back(r);
    }
    for (int v = 1; v < static_cast<int>(visits.size()); ++v) {
      if (visits[v].agent != rank) continue;
      inflows_.push_back({.route = r, .visit = v, .from = visits[v - 1].agent});
    }
  }
  Reset();
}

void RankSchedule::Reset() {
  num_missing_ = 0;
  for (Inflow& inflow : inflows_) {
    const Range range = routes_[inflow.route].range;
    inflow.next = range.begin;
    num_missing_ += range.size();
  }
}

RankSchedule::Inflow* RankSchedule::Due(int route, int visit, int from,
                                        Range segment) {
  const auto found = std::lower_bound(
      inflows_.begin(), inflows_.end(), std::pair(route, visit),
      [](const Inflow& inflow, std::pair<int, int> place) {
        return std::pair(inflow.route, inflow.visit) < place;
      });
  if (found == inflows_.end() || found->route != route ||
      found->visit != visit || found->from != from) {
    return nullptr;
  }
  const Range range = routes_[route].range;
  if (found->next >= range.end || !(segment == SegmentAt(range, found->next))) {
    return nullptr;
  }
  return &*found;
}

int RankSchedule::awaited() const {
  for (const Inflow& inflow : inflows_) {
    if (inflow.next < routes_[inflow.route].range.end) return inflow.from;
  }
  return -1;
}

}  // namespace psring
