#include "client/job_collectives.h"

#include <utility>

#include "common/clock.h"
#include "common/cluster/process_names.h"

namespace psring {

absl::StatusOr<std::unique_ptr<Collectives>> ConnectCollectives(
    JobClient& job, const CollectivesOptions& options) {
  auto collectives = Collectives::Create(job.context(), job.cancellation(),
                                         job.address(), options);
  if (!collectives.ok()) return collectives;
  auto endpoints = job.member().Gather(
      "collectives", (*collectives)->endpoint(), Now() + options.step_timeout);
  if (!endpoints.ok()) return endpoints.status();
  CollectiveJob others;
  others.epoch = job.job().job_epoch();
  others.rank = job.job().rank();
  others.main_thread = options.main_thread;
  others.endpoints = *std::move(endpoints);
  for (const proto::Process& worker : job.job().workers()) {
    others.descriptions.push_back(Describe(worker));
    others.public_keys.push_back(worker.public_key());
    others.pids.push_back(worker.pid());
  }
  absl::Status status = (*collectives)->Connect(std::move(others));
  if (!status.ok()) return status;
  return collectives;
}

}  // namespace psring
