#include "common/exchange/ends_job.h"

namespace psring {

bool EndsJob(const absl::Status& status) {
  return absl::IsCancelled(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsUnavailable(status) || absl::IsAborted(status);
}

}  // namespace psring
