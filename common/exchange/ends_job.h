#ifndef PSRING_COMMON_EXCHANGE_ENDS_JOB_H_
#define PSRING_COMMON_EXCHANGE_ENDS_JOB_H_

#include "absl/status/status.h"

namespace psring {

// Whether SaveState or FetchSlots (gradient_exchange.h) has failed because of
// the job, and not of a disk or for want of memory.
bool EndsJob(const absl::Status& status);

}  // namespace psring

#endif  // PSRING_COMMON_EXCHANGE_ENDS_JOB_H_
