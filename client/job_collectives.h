// Collectives among all workers of a job.
#ifndef PSRING_CLIENT_JOB_COLLECTIVES_H_
#define PSRING_CLIENT_JOB_COLLECTIVES_H_

#include <memory>

#include "absl/status/statusor.h"
#include "client/job_client.h"
#include "collectives/collectives.h"
#include "collectives/options.h"

namespace psring {

// All workers call it, once, after they have joined. Blocks until they have, at
// most for the options' step timeout. `job` outlives what is returned.
absl::StatusOr<std::unique_ptr<Collectives>> ConnectCollectives(
    JobClient& job, const CollectivesOptions& options);

}  // namespace psring

#endif  // PSRING_CLIENT_JOB_COLLECTIVES_H_
