// Which server owns what.
#ifndef PSRING_PS_SHARD_MAP_H_
#define PSRING_PS_SHARD_MAP_H_

#include <string>
#include <vector>

#include "common/model/layout.h"
#include "common/model/shard_cut.h"
#include "protos/cluster.pb.h"

namespace psring {

// What one shard thread of one server owns.
struct ShardPlace {
  int server = 0;  // rank
  std::string endpoint;
  Ranges ranges;
};

// The flat model, cut among servers and each one's threads (shard_cut.h).
// Server by server; those and the threads that have nothing among them.
std::vector<ShardPlace> MapShards(const Layout& layout,
                                  const proto::Welcome& job);

// Whether this host would have a core for every worker and shard, were all of
// them here. Where it has not, who waits sleeps at once: another one may need
// the core.
bool HasCoreForEach(const proto::Welcome& job);

}  // namespace psring

#endif  // PSRING_PS_SHARD_MAP_H_
