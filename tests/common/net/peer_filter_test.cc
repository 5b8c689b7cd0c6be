#include "common/net/peer_filter.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/testing/captured_log.h"

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

TEST(PeerFilter, NamesTheWorkerThatHasProvenItsRank) {
  CapturedLog log;
  PeerFilter peers("tcp://127.0.0.1:7000");
  peers.Drop("a", absl::InvalidArgumentError("not a message"), 3);
  peers.Drop("b", absl::InvalidArgumentError("not a message"));
  EXPECT_EQ(log.Count("dropped peer 61 (worker 3) of tcp://127.0.0.1:7000: "
                      "not a message"),
            1);
  EXPECT_EQ(log.Count("dropped peer 62 of tcp://127.0.0.1:7000: "), 1);
}

// Strangers come with a new name each time.
TEST(PeerFilter, RemembersAsManyAsItSays) {
  PeerFilter peers("tcp://127.0.0.1:7000");
  const auto drop = [&](size_t i) {
    peers.Drop(std::to_string(i), absl::InvalidArgumentError("no message"));
  };
  for (size_t i = 0; i < PeerFilter::kMaxDropped; ++i) drop(i);
  EXPECT_FALSE(peers.Hears("0"));
  drop(PeerFilter::kMaxDropped);
  EXPECT_TRUE(peers.Hears("0"));
  EXPECT_FALSE(peers.Hears("1"));
  // One that it knows takes nobody's place.
  for (int i = 0; i < 5; ++i) drop(PeerFilter::kMaxDropped);
  EXPECT_FALSE(peers.Hears("1"));
}

TEST(PeerFilter, SaysLessAndLessOfThem) {
  CapturedLog log;
  PeerFilter peers("tcp://127.0.0.1:7000");
  for (int i = 0; i < 5000; ++i) {
    peers.Drop(std::to_string(i), absl::InvalidArgumentError("\x1b[2J"));
  }
  // The first hundred and the 1,000th.
  EXPECT_EQ(log.Count("dropped peer"), 101);
  EXPECT_EQ(log.Count("\\x1b[2J (1000 so far)"), 1);
  EXPECT_EQ(log.Count("\x1b[2J"), 0);
}

}  // namespace
}  // namespace psring
