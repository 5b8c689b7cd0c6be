#include "ps/shard_map.h"

namespace psring {

std::vector<ShardPlace> MapShards(const Layout& layout,
                                  const proto::Welcome& job) {
  std::vector<ShardPlace> places;
  const Range all{0, layout.num_elements()};
  for (int s = 0; s < job.servers_size(); ++s) {
    const proto::Process& server = job.servers(s);
    const Range part = NearEqualPart(all, job.servers_size(), s);
    for (int t = 0; t < server.endpoints_size(); ++t) {
      places.push_back({s, server.endpoints(t),
                        NearEqualPart(part, server.endpoints_size(), t)});
    }
  }
  return places;
}

}  // namespace psring
