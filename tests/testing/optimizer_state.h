// The optimizer's state of an exchange, by both ways that lead to it.
#ifndef PSRING_TESTS_TESTING_OPTIMIZER_STATE_H_
#define PSRING_TESTS_TESTING_OPTIMIZER_STATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/layout.h"
#include "protos/cluster.pb.h"

namespace psring {

// Rank 0 only, between steps: lays a checkpoint's files of tensors out in
// `directory`, has everybody who holds state write it, and writes what they
// leave. What was written by others than LayOutStateFiles.
absl::StatusOr<proto::SavedState> SaveStateFiles(
    GradientExchange& exchange, const std::string& directory,
    const Layout& layout, absl::Span<const std::string> slot_names,
    Time deadline);

// By slot, of tensors one after the other.
using Slots = std::vector<std::vector<float>>;

// What SaveStateFiles has written.
absl::StatusOr<Slots> SlotsInFiles(const std::string& directory,
                                   const Layout& layout,
                                   absl::Span<const std::string> slot_names);
// What FetchSlots brings, rank 0 only, between steps.
absl::StatusOr<Slots> FetchedSlots(GradientExchange& exchange,
                                   const Layout& layout, int num_slots,
                                   Time deadline);

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_OPTIMIZER_STATE_H_
