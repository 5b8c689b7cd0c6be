#include "common/cluster/host_groups.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "common/cluster/host_of.h"

namespace psring {
namespace {

// The workers that sum within their host.
std::map<HostId, std::vector<int>> GroupsOf(const proto::Welcome& job) {
  std::map<HostId, std::vector<int>> groups;
  std::map<HostId, std::set<std::string>> devices;
  std::set<HostId> shared;
  for (int r = 0; r < job.workers_size(); ++r) {
    const proto::Process& worker = job.workers(r);
    if (worker.sum_device().empty()) continue;
    groups[HostOf(worker)].push_back(r);
    if (!devices[HostOf(worker)].insert(worker.sum_device()).second) {
      shared.insert(HostOf(worker));
    }
  }
  for (const HostId& host : shared) groups.erase(host);
  return groups;
}

}  // namespace

std::vector<int> HostGroupOf(const proto::Welcome& job, int rank) {
  const auto groups = GroupsOf(job);
  const auto group = groups.find(HostOf(job.workers(rank)));
  if (job.workers(rank).sum_device().empty() || group == groups.end()) {
    return {rank};
  }
  return group->second;
}

std::vector<int> GradientsPushed(const proto::Welcome& job) {
  std::vector<int> pushed(job.workers_size(), 1);
  for (const auto& [host, group] : GroupsOf(job)) {
    for (const int r : group) pushed[r] = 0;
    pushed[group.front()] = static_cast<int>(group.size());
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
