#include "worker/hardware.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/cluster/host_of.h"
#include "common/host_cores.h"
#include "common/host_hardware.h"

namespace psring {

TextTableRows HardwareOf(const proto::Welcome& job, bool on_gpu) {
  std::map<HostId, std::vector<std::string>> hosts;
  for (const proto::Process& server : job.servers()) {
    hosts[HostOf(server)].push_back(absl::StrCat("server ", server.rank()));
  }
  for (const proto::Process& worker : job.workers()) {
    hosts[HostOf(worker)].push_back(absl::StrCat("worker ", worker.rank()));
  }
  TextTableRows rows;
  for (const auto& [host, processes] : hosts) {
    rows.emplace_back(absl::StrCat("host ", host.first),
                      absl::StrJoin(processes, ", "));
  }
  const std::string here = absl::StrCat("worker ", job.rank(), "'s ");
  rows.emplace_back(here + "processor", CpuName());
  rows.emplace_back(here + "cores", absl::StrCat(HostCores()));
  rows.emplace_back(here + "memory", absl::StrCat(MemoryBytes() >> 30, " GiB"));
  rows.emplace_back(here + "computing", on_gpu ? "on a GPU" : "on the CPU");
  return rows;
}

}  // namespace psring
