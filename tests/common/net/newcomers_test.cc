// What a control socket does for peers that nobody has vouched for.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/net/link.h"
#include "common/net/socket.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

class NewcomersTest : public ::testing::Test {
 protected:
  NewcomersTest() {
    EXPECT_EQ(context_.UseTokens(), absl::OkStatus());
    auto router = Socket::Bind(context_, "127.0.0.1", 0,
                               {.plane = SocketOptions::Plane::kControl});
    EXPECT_TRUE(router.ok()) << router.status();
    router_ = *std::move(router);
  }

  // `peer` says something, and confirms nothing that comes back; its identity.
  std::string Meet(HostilePeer& peer) {
    peer.Send({"hello"});
    const Time deadline = Soon();
    while (Now() < deadline) {
      Wait({router_.get()}, std::vector<int>{}, deadline).IgnoreError();
      const auto frames = router_->TryReceive();
      if (!frames.ok() || !frames->has_value()) continue;
      return std::string((**frames)[0].view());
    }
    ADD_FAILURE() << "nothing has come";
    return "";
  }

  absl::Status Answer(const std::string& identity, const std::string& text) {
    Frames frames;
    frames.push_back(Frame::Copy(identity));
    frames.push_back(Frame::Copy(text));
    return router_->Send(std::move(frames));
  }

  HostilePeer& NewPeer() { return peers_.emplace_back(router_->endpoint()); }

 private:
  // They outlive the context: ZeroMQ 4.3 aborts where a connection breaks amid
  // a message of several parts while its socket ends (session_base.cpp,
  // clean_pipes).
  std::deque<HostilePeer> peers_;

 protected:
  Context context_;
  std::unique_ptr<Socket> router_;
};

TEST_F(NewcomersTest, TheOldestIsForgottenWhereMuchIsKeptForThem) {
  const std::string large(1 << 20, 'x');
  HostilePeer &first = NewPeer(), &second = NewPeer(), &member = NewPeer();
  const std::string known = Meet(member);
  router_->Vouch(known);
  const std::string old = Meet(first);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Answer(old, large), absl::OkStatus());
  const std::string young = Meet(second);
  EXPECT_EQ(Answer(young, large), absl::OkStatus());
  EXPECT_EQ(Answer(old, "").code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Answer(young, ""), absl::OkStatus());
  for (int i = 0; i < 8; ++i) EXPECT_EQ(Answer(known, large), absl::OkStatus());
  EXPECT_EQ(Answer(young, ""), absl::OkStatus());
}

TEST_F(NewcomersTest, WhoIsIgnoredHearsWhyAndIsNotHeard) {
  HostilePeer &refused = NewPeer(), &other = NewPeer();
  const std::string identity = Meet(refused);
  EXPECT_EQ(Answer(identity, "no"), absl::OkStatus());
  router_->Ignore(identity);
  refused.Send({"again"});
  ASSERT_TRUE(refused.AwaitTaken(Soon()));
  const auto heard = refused.Receive(Soon());
  ASSERT_TRUE(heard.has_value());
  EXPECT_EQ(heard->back(), "no");
  EXPECT_NE(Meet(other), identity);
}

// A message without bytes takes some, too.
TEST_F(NewcomersTest, SmallAnswersCount) {
  HostilePeer& peer = NewPeer();
  const std::string identity = Meet(peer);
  int answers = 0;
  while (answers < 1 << 20 && Answer(identity, "").ok()) ++answers;
  EXPECT_LT(answers, 1 << 16);
}

// As a frame of ZMTP: no flags, and how many bytes follow.
std::string ResumeWord() {
  const auto resume = Encode({LinkHeader::Kind::kResume, 0, 0});
  const char size = static_cast<char>(resume.size());
  return absl::StrCat(absl::string_view("\0", 1), absl::string_view(&size, 1),
                      absl::string_view(resume.data(), resume.size()));
}

TEST_F(NewcomersTest, AWordBringsMuchAgainOnlyToWhoIsKnown) {
  constexpr int kAnswers = 8;
  for (const bool vouched : {false, true}) {
    HostilePeer& peer = NewPeer();
    const std::string identity = Meet(peer);
    if (vouched) router_->Vouch(identity);
    for (int i = 0; i < kAnswers; ++i) {
      ASSERT_EQ(Answer(identity, "answer"), absl::OkStatus());
    }
    peer.SendBytes(ResumeWord());
    Meet(peer);
    ASSERT_EQ(Answer(identity, "end"), absl::OkStatus());
    int received = 0;
    while (const auto message = peer.Receive(Soon())) {
      if (message->front() == "end") break;
      ++received;
    }
    EXPECT_EQ(received, vouched ? 2 * kAnswers : kAnswers);
  }
}

// Each asks for all that it never confirmed.
TEST_F(NewcomersTest, WhoConnectsAnewWithoutEndBreaksTheRules) {
  HostilePeer& peer = NewPeer();
  const std::string identity = Meet(peer);
  router_->Vouch(identity);
  ASSERT_EQ(Answer(identity, "answer"), absl::OkStatus());
  std::string words;
  for (int i = 0; i < 1000; ++i) words += ResumeWord();
  peer.SendBytes(words);
  const Time deadline = Soon();
  std::optional<size_t> parts;
  while (!parts.has_value() && Now() < deadline) {
    Wait({router_.get()}, std::vector<int>{}, deadline).IgnoreError();
    const auto frames = router_->TryReceive();
    ASSERT_TRUE(frames.ok()) << frames.status();
    if (frames->has_value()) parts = (*frames)->size();
  }
  EXPECT_EQ(parts, 1u) << "an identity alone: what it says is no message";
}

}  // namespace
}  // namespace psring
