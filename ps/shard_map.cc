#include "ps/shard_map.h"

#include <utility>

#include "common/host_cores.h"

namespace psring {
std::vector<ShardPlace> MapShards(const Layout& layout,
                                  const proto::Welcome& job) {
  std::vector<Range> buckets;
  for (int b = 0; b < layout.num_buckets(); ++b) {
    buckets.push_back(layout.bucket(b));
  }
  const std::vector<Ranges> parts =
      CutAmongServers(buckets, job.servers_size());
  std::vector<ShardPlace> places;
  for (int s = 0; s < job.servers_size(); ++s) {
    const auto& endpoints = job.servers(s).endpoints();
    std::vector<Ranges> of_threads =
        CutAmongThreads(parts[s], buckets, endpoints.size());
    for (int t = 0; t < endpoints.size(); ++t) {
      places.push_back({s, endpoints[t], std::move(of_threads[t])});
    }
  }
  return places;
}

bool HasCoreForEach(const proto::Welcome& job) {
  int threads = job.workers_size();
  for (const proto::Process& server : job.servers()) {
    threads += server.endpoints_size();
  }
  return threads <= HostCores();
}

}  // namespace psring
