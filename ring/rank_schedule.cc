#include "ring/rank_schedule.h"

#include <algorithm>
#include <utility>

namespace psring {

RankSchedule::RankSchedule(const std::vector<Route>& routes, int rank) {
  for (int r = 0; r < static_cast<int>(routes.size()); ++r) {
    const Route& route = routes[r];
    const auto agent = [&](int v) {
      const bool there = v >= 0 && v < static_cast<int>(route.visits.size());
      return there ? route.visits[v].agent : -1;
    };
    for (int v = 0; agent(v) >= 0; ++v) {
      if (agent(v) != rank) continue;
      if (v == 0) {
        (route.waits ? waiting_ : starts_)
            .push_back(static_cast<int>(visits_.size()));
      }
      visits_.push_back({.route = r,
                         .visit = v,
                         .range = route.range,
                         .apart = route.apart,
                         .from = agent(v - 1),
                         .to = agent(v + 1),
                         .here = route.visits[v]});
    }
  }
  Reset();
}

void RankSchedule::Reset() {
  num_missing_ = 0;
  for (RankVisit& visit : visits_) {
    // Nothing comes to where a route starts.
    visit.next = visit.visit == 0 ? visit.range.end : visit.range.begin;
    num_missing_ += visit.range.end - visit.next;
  }
}

RankVisit* RankSchedule::Due(int route, int visit, int from, Range segment) {
  const auto found =
      std::lower_bound(visits_.begin(), visits_.end(), std::pair(route, visit),
                       [](const RankVisit& v, std::pair<int, int> place) {
                         return std::pair(v.route, v.visit) < place;
                       });
  if (found == visits_.end() || found->route != route ||
      found->visit != visit || found->from != from) {
    return nullptr;
  }
  if (found->next >= found->range.end ||
      !(segment == SegmentAt(found->range, found->next))) {
    return nullptr;
  }
  return &*found;
}

int RankSchedule::awaited() const {
  for (const RankVisit& visit : visits_) {
    if (visit.next < visit.range.end) return visit.from;
  }
  return -1;
}

}  // namespace psring
