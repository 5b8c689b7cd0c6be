#include "ps/shard_map.h"

#include "common/host_cores.h"

namespace psring {
namespace {

// The c-th of n parts; of those behind them, which are none, the end.
Range PartOrNothing(Range whole, int n, int c) {
  return c < n ? NearEqualPart(whole, n, c) : Range{whole.end, whole.end};
}

}  // namespace

std::vector<ShardPlace> MapShards(const Layout& layout,
                                  const proto::Welcome& job) {
  std::vector<ShardPlace> places;
  const Range all{0, layout.num_elements()};
  const int servers = ServersFor(all.size(), job.servers_size());
  for (int s = 0; s < job.servers_size(); ++s) {
    const proto::Process& server = job.servers(s);
    const Range part = PartOrNothing(all, servers, s);
    const int threads = ShardThreadsFor(part.size(), server.endpoints_size());
    for (int t = 0; t < server.endpoints_size(); ++t) {
      places.push_back(
          {s, server.endpoints(t), PartOrNothing(part, threads, t)});
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
