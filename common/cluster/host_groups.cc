#include "common/cluster/host_groups.h"

#include <algorithm>
#include <map>
#include <string>

namespace psring {

std::vector<int> HostGroupOf(const proto::Welcome& job, int rank) {
  const proto::Process& own = job.workers(rank);
  if (!own.sums_within_host()) return {rank};
  std::vector<int> group;
  for (int r = 0; r < job.workers_size(); ++r) {
    const proto::Process& other = job.workers(r);
    if (other.sums_within_host() && other.host() == own.host()) {
      group.push_back(r);
    }
  }
  return group;
}

std::vector<int> GradientsPushed(const proto::Welcome& job) {
  std::vector<int> pushed(job.workers_size(), 0);
  std::map<std::string, int> leaders;  // by host
  for (int r = 0; r < job.workers_size(); ++r) {
    const proto::Process& worker = job.workers(r);
    ++pushed[worker.sums_within_host()
                 ? leaders.emplace(worker.host(), r).first->second
                 : r];
  }
  return pushed;
}

proto::Welcome HostGroupJob(const proto::Welcome& job) {
  const std::vector<int> group = HostGroupOf(job, job.rank());
  proto::Welcome own;
  own.set_job_epoch(job.job_epoch());
  *own.mutable_spec() = job.spec();
  own.set_model_id(job.model_id());
  for (const int r : group) *own.add_workers() = job.workers(r);
  own.set_rank(static_cast<int>(
      std::find(group.begin(), group.end(), job.rank()) - group.begin()));
  return own;
}

}  // namespace psring
