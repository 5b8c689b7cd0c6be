// A checkpoint's files of tensors, of an exchange.
#ifndef PSRING_COMMON_EXCHANGE_SAVE_STATE_H_
#define PSRING_COMMON_EXCHANGE_SAVE_STATE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/layout.h"
#include "protos/cluster.pb.h"

namespace psring {

// Whether a save has failed because of the job, and not of the disk.
bool EndsJob(const absl::Status& status);

// Rank 0 only, between steps: lays the files out in `directory`, has everybody
// who holds state write it, and writes what they leave. What was written by
// others than LayOutStateFiles. Blocks; errors are
// GradientExchange::SaveState's and those of the files.
absl::StatusOr<proto::SavedState> SaveStateFiles(
    GradientExchange& exchange, const std::string& directory,
    const Layout& layout, absl::Span<const std::string> slot_names,
    Time deadline);

}  // namespace psring

#endif  // PSRING_COMMON_EXCHANGE_SAVE_STATE_H_
