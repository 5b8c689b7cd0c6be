// What a rank is about to launch in every step, as text, so that ranks can
// compare it before they do: collectives that do not match hang in silence.
// Pure.
#ifndef PSRING_RING_COLLECTIVE_PLAN_H_
#define PSRING_RING_COLLECTIVE_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/layout.h"
#include "protos/cluster.pb.h"

namespace psring {

// The allreduces of `buckets`, in this rank's order, as collective number
// `sequence` and those behind it: a line each, with what the bucket holds.
std::string PlanText(const Layout& layout, absl::Span<const int> buckets,
                     int64_t sequence);

// The order in which all launch: rank 0's. For each of its collectives, the
// place of the same one in the plan of rank `self`. FAILED_PRECONDITION shows
// the first difference and the two ranks.
absl::StatusOr<std::vector<int>> AgreeOnPlan(
    absl::Span<const std::string> plans, int self, const proto::Welcome& job);

}  // namespace psring

#endif  // PSRING_RING_COLLECTIVE_PLAN_H_
