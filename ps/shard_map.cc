#include "ps/shard_map.h"

#include <algorithm>

#include "common/host_cores.h"

namespace psring {
namespace {

// To wake another thread takes longer than a piece's update.
int ShardsFor(Range part, int threads) {
  const int64_t pieces = (part.size() + kPieceElements - 1) / kPieceElements;
  return static_cast<int>(std::clamp<int64_t>(pieces, 1, std::max(threads, 1)));
}

}  // namespace

std::vector<ShardPlace> MapShards(const Layout& layout,
                                  const proto::Welcome& job) {
  std::vector<ShardPlace> places;
  const Range all{0, layout.num_elements()};
  for (int s = 0; s < job.servers_size(); ++s) {
    const proto::Process& server = job.servers(s);
    const Range part = NearEqualPart(all, job.servers_size(), s);
    const int used = ShardsFor(part, server.endpoints_size());
    for (int t = 0; t < server.endpoints_size(); ++t) {
      places.push_back({s, server.endpoints(t),
                        t < used ? NearEqualPart(part, used, t)
                                 : Range{part.end, part.end}});
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
