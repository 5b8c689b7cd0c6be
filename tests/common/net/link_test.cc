#include "common/net/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <string>
#include <vector>

namespace psring {
namespace {

using Kind = LinkHeader::Kind;

absl::string_view Bytes(const std::array<char, kLinkHeaderBytes>& bytes) {
  return {bytes.data(), bytes.size()};
}

TEST(LinkHeaderTest, TravelsWhole) {
  const auto bytes = Encode({Kind::kMessage, 0x0102030405060708, 77});
  const auto header = ParseLinkHeader(Bytes(bytes));
  ASSERT_TRUE(header.has_value());
  EXPECT_EQ(header->kind, Kind::kMessage);
  EXPECT_EQ(header->number, 0x0102030405060708u);
  EXPECT_EQ(header->received, 77u);
}

TEST(LinkHeaderTest, OfOthersIsNone) {
  EXPECT_FALSE(ParseLinkHeader("").has_value());
  EXPECT_FALSE(
      ParseLinkHeader(std::string(kLinkHeaderBytes, '\0')).has_value());
  EXPECT_FALSE(
      ParseLinkHeader(std::string(kLinkHeaderBytes, '\7')).has_value());
  EXPECT_FALSE(ParseLinkHeader(std::string(64, '\1')).has_value());
  EXPECT_TRUE(ParseLinkHeader(Bytes(Encode({Kind::kResumed, 0, 1}))));
  EXPECT_FALSE(ParseLinkHeader(Bytes(Encode({static_cast<Kind>(5), 0, 1}))));
  // A message has a number, and nothing else has one.
  EXPECT_FALSE(ParseLinkHeader(Bytes(Encode({Kind::kMessage, 0, 1}))));
  EXPECT_FALSE(ParseLinkHeader(Bytes(Encode({Kind::kAck, 1, 1}))));
}

TEST(LinkTest, BelievesNobodyWhoHasHeardWhatWasNotSaid) {
  Link link;
  link.Next();
  EXPECT_FALSE(link.OnHeader({Kind::kAck, 0, 2}).has_value());
  EXPECT_EQ(link.unacknowledged(), 1u);
  EXPECT_EQ(link.OnHeader({Kind::kAck, 0, 1})->acknowledged, 1u);
  EXPECT_EQ(link.unacknowledged(), 0u);
}

TEST(LinkTest, WhateverItSaysTellsWhatHasArrived) {
  Link link;
  EXPECT_TRUE(link.OnHeader({Kind::kMessage, 1, 0})->deliver);
  EXPECT_TRUE(link.OnHeader({Kind::kMessage, 2, 0})->deliver);
  EXPECT_EQ(link.untold(), 2u);
  EXPECT_EQ(link.Say(Kind::kAck).received, 2u);
  EXPECT_EQ(link.untold(), 0u);
  EXPECT_TRUE(link.OnHeader({Kind::kMessage, 3, 0})->deliver);
  EXPECT_EQ(link.Next().received, 3u);
  EXPECT_EQ(link.untold(), 0u);
}

// One side, which keeps what may be lost, as a socket does.
struct Side {
  Link link;
  std::deque<int> kept;
  std::vector<int> heard;
};

struct Said {
  LinkHeader header;
  int value = 0;
};

// Two sides that talk over connections that break: what is under way is lost,
// or arrives after all, while the DEALER takes up its conversation again.
TEST(LinkTest, DeliversEachMessageOnceAndInOrderHoweverOftenConnectionsBreak) {
  for (uint32_t seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    Side sides[2];
    std::deque<Said> wires[2];  // to that side
    int said[2] = {0, 0};
    const auto resend = [&](int from) {
      Side& side = sides[from];
      for (size_t i = 0; i < side.kept.size(); ++i) {
        wires[1 - from].push_back({side.link.Again(i), side.kept[i]});
      }
    };
    const auto hear = [&](int to) {
      if (wires[to].empty()) return;
      const Said message = wires[to].front();
      wires[to].pop_front();
      Side& side = sides[to];
      const auto news = side.link.OnHeader(message.header);
      ASSERT_TRUE(news.has_value());
      side.kept.erase(side.kept.begin(),
                      side.kept.begin() + news->acknowledged);
      if (news->deliver) side.heard.push_back(message.value);
      if (message.header.kind == Kind::kResume) {
        wires[1 - to].push_back({side.link.Say(Kind::kResumed)});
      }
      if (message.header.kind >= Kind::kResume) resend(to);
    };
    constexpr int kMessages = 50;
    for (int turn = 0; turn < 10'000; ++turn) {
      const int who = static_cast<int>(random() % 2);
      const uint32_t what = random() % 100;
      if (what < 40 && said[who] < kMessages) {
        sides[who].kept.push_back(said[who]);
        wires[1 - who].push_back({sides[who].link.Next(), said[who]++});
      } else if (what < 90) {
        hear(who);
      } else if (what < 95) {
        wires[1 - who].push_back({sides[who].link.Say(Kind::kAck)});
      } else if (turn < 9'000) {
        // What was under way is lost. What had not left the DEALER's queue goes
        // over the new connection, before its first word there.
        wires[0].resize(random() % (wires[0].size() + 1));
        const size_t begin = random() % (wires[1].size() + 1);
        const size_t lost = random() % (wires[1].size() + 1 - begin);
        wires[1].erase(wires[1].begin() + begin,
                       wires[1].begin() + begin + lost);
        wires[1].push_back({sides[0].link.Say(Kind::kResume)});
      }
    }
    for (int side = 0; side < 2; ++side) {
      ASSERT_EQ(sides[side].heard.size(), static_cast<size_t>(kMessages))
          << "seed " << seed;
      for (int i = 0; i < kMessages; ++i) ASSERT_EQ(sides[side].heard[i], i);
    }
  }
}

}  // namespace
}  // namespace psring
