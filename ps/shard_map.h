// Which server owns what.
#ifndef PSRING_PS_SHARD_MAP_H_
#define PSRING_PS_SHARD_MAP_H_

#include <string>
#include <vector>

#include "common/model/layout.h"
#include "protos/cluster.pb.h"

namespace psring {

// What one shard thread of one server owns.
struct ShardPlace {
  int server = 0;  // rank
  std::string endpoint;
  Range range;
};

// The flat model in contiguous, near-equal parts, one a server, each cut once
// more among that server's shards. In the model's order.
std::vector<ShardPlace> MapShards(const Layout& layout,
                                  const proto::Welcome& job);

}  // namespace psring

#endif  // PSRING_PS_SHARD_MAP_H_
