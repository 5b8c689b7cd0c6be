#include "tests/testing/hostile_peer.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/socket.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

class HostilePeerTest : public ::testing::Test {
 protected:
  // What the socket has now, without the identity; empty: nothing.
  std::vector<std::string> ReceiveNow() {
    auto received = socket_->TryReceive();
    EXPECT_TRUE(received.ok()) << received.status();
    std::vector<std::string> frames;
    if (!received->has_value()) return frames;
    peer_ = std::string((**received)[0].view());
    for (size_t i = 1; i < (*received)->size(); ++i) {
      frames.emplace_back((**received)[i].view());
    }
    return frames;
  }

  Context context_;
  const std::unique_ptr<Socket> socket_ =
      *Socket::Bind(context_, "127.0.0.1", 0, {.max_frame_bytes = 100000});
  std::string peer_;  // of the last message
};

TEST_F(HostilePeerTest, WhatHasBeenTakenIsThere) {
  std::deque<HostilePeer> peers;
  for (int i = 0; i < 100; ++i) {
    peers.emplace_back(socket_->endpoint()).Send({absl::StrCat(i), ""});
    ASSERT_TRUE(peers.back().AwaitTaken(Soon()));
    ASSERT_EQ(ReceiveNow(), (std::vector<std::string>{absl::StrCat(i), ""}));
  }
}

TEST_F(HostilePeerTest, FramesOfAnySizeArriveAsTheyWereSent) {
  HostilePeer peer(socket_->endpoint());
  const std::vector<std::string> message = {"", std::string(255, 'a'),
                                            std::string(256, 'b'),
                                            std::string(100000, 'c')};
  peer.Send(message);
  ASSERT_TRUE(peer.AwaitTaken(Soon()));
  EXPECT_EQ(ReceiveNow(), message);
}

TEST_F(HostilePeerTest, HearsWhatComesBack) {
  HostilePeer peer(socket_->endpoint());
  peer.Send({"question"});
  ASSERT_TRUE(peer.AwaitTaken(Soon()));
  ReceiveNow();
  const std::vector<std::string> answer = {"yes", std::string(70000, 'x')};
  Frames frames;
  frames.push_back(Frame::Copy(peer_));
  for (const std::string& frame : answer) frames.push_back(Frame::Copy(frame));
  ASSERT_TRUE(socket_->Send(std::move(frames)).ok());
  ASSERT_TRUE(peer.AwaitTaken(Soon()));  // does not lose it
  EXPECT_EQ(peer.Receive(Soon()), answer);
}

TEST_F(HostilePeerTest, LearnsThatItWasCutOff) {
  HostilePeer peer(socket_->endpoint());
  peer.Send({std::string(100001, 'x')});
  EXPECT_FALSE(peer.AwaitTaken(Soon()));
  EXPECT_EQ(peer.Receive(Soon()), std::nullopt);
  EXPECT_TRUE(ReceiveNow().empty());
}

}  // namespace
}  // namespace psring
