#include "common/net/peer_filter.h"

#include <gtest/gtest.h>

#include <string>

namespace psring {
namespace {

TEST(PeerFilter, HearsEverybodyButWhomItDropped) {
  PeerFilter peers("tcp://127.0.0.1:7000");
  const std::string stranger("\0stranger", 9);
  EXPECT_TRUE(peers.Hears(stranger));
  peers.Drop(stranger, absl::InvalidArgumentError("not a message"));
  EXPECT_FALSE(peers.Hears(stranger));
  EXPECT_TRUE(peers.Hears("somebody else"));
}

// One that was heard already may have more to be dropped for.
TEST(PeerFilter, CountsEveryMalformedMessage) {
  PeerFilter peers("tcp://127.0.0.1:7000");
  EXPECT_EQ(peers.malformed(), 0);
  peers.Drop("a", absl::InvalidArgumentError("not a message"));
  peers.Drop("a", absl::InvalidArgumentError("not what was due"));
  peers.Drop("b", absl::InvalidArgumentError("not a message"));
  EXPECT_EQ(peers.malformed(), 3);
}

}  // namespace
}  // namespace psring
