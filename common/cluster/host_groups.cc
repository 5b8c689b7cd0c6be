#include "common/cluster/host_groups.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace psring {
namespace {

// By host: the workers that sum within it.
std::map<std::string, std::vector<int>> GroupsOf(const proto::Welcome& job) {
  std::map<std::string, std::vector<int>> groups;
  std::map<std::string, std::set<std::string>> devices;
  std::set<std::string> shared;
  for (int r = 0; r < job.workers_size(); ++r) {
    const proto::Process& worker = job.workers(r);
    if (worker.sum_device().empty()) continue;
    groups[worker.host()].push_back(r);
    if (!devices[worker.host()].insert(worker.sum_device()).second) {
      shared.insert(worker.host());
    }
  }
  for (const std::string& host : shared) groups.erase(host);
  return groups;
}

}  // namespace

std::vector<int> HostGroupOf(const proto::Welcome& job, int rank) {
  const auto groups = GroupsOf(job);
  const auto group = groups.find(job.workers(rank).host());
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
