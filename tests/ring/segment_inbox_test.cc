#include "ring/segment_inbox.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/net/frame.h"
#include "common/net/keys.h"
#include "common/net/socket.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using proto::WireHeader;

constexpr uint64_t kJob = 99;

WireHeader SegmentOf(uint64_t sequence) {
  WireHeader header;
  header.set_kind(WireHeader::SEGMENT);
  header.set_dtype(WireHeader::FLOAT32);
  header.set_job_epoch(kJob);
  header.set_sequence(sequence);
  header.set_num_elements(1);
  return header;
}

class SegmentInboxTest : public ::testing::Test {
 protected:
  SegmentInboxTest() : inbox_(*SegmentInbox::Create(context_, "127.0.0.1")) {
    inbox_->JoinJob(kJob);
  }

  std::unique_ptr<Socket> Peer() {
    return *Socket::Connect(context_, inbox_->socket().endpoint());
  }

  static void Send(Socket& from, const WireHeader& header,
                   const std::string& payload) {
    DataMessage message;
    message.header = header;
    message.payload = Frame::Copy(payload);
    ASSERT_TRUE(SendData(from, std::move(message)).ok());
  }

  // What comes next, when it has come.
  DataMessage Next(uint64_t sequence) {
    const Time deadline = Soon();
    while (Now() < deadline) {
      auto message = inbox_->TryNext(sequence);
      EXPECT_TRUE(message.ok()) << message.status();
      if (!message.ok()) break;
      if (message->has_value()) return **std::move(message);
      AwaitMessage(deadline);
    }
    ADD_FAILURE() << "nothing of collective " << sequence;
    return {};
  }
  std::string NextPayload(uint64_t sequence) {
    return std::string(Next(sequence).payload.view());
  }

  void AwaitMessage(Time deadline) {
    Socket* const sockets[] = {&inbox_->socket()};
    ASSERT_TRUE(Wait(sockets, absl::Span<const int>(), deadline).ok());
  }

  Context context_;
  const std::unique_ptr<SegmentInbox> inbox_;
};

TEST_F(SegmentInboxTest, KeepsWhatComesTooEarlyInItsOrder) {
  const auto peer = Peer();
  Send(*peer, SegmentOf(3), "3a..");
  Send(*peer, SegmentOf(2), "2a..");
  Send(*peer, SegmentOf(3), "3b..");
  Send(*peer, SegmentOf(1), "1a..");
  EXPECT_EQ(NextPayload(1), "1a..");
  EXPECT_EQ(NextPayload(2), "2a..");
  EXPECT_EQ(NextPayload(3), "3a..");
  EXPECT_EQ(NextPayload(3), "3b..");
  const auto more = inbox_->TryNext(3);
  ASSERT_TRUE(more.ok());
  EXPECT_FALSE(more->has_value());
  EXPECT_EQ(inbox_->malformed(), 0);
}

TEST_F(SegmentInboxTest, DropsWhoSendsSomethingElse) {
  std::vector<WireHeader> wrong(6, SegmentOf(2));
  wrong[0].set_kind(WireHeader::PUSH);
  wrong[1].set_dtype(WireHeader::BYTES);
  wrong[2].set_job_epoch(kJob + 1);
  wrong[3].set_offset((uint64_t{1} << 40) + 1);
  wrong[4].set_sequence(1);       // is over
  wrong[5].set_sequence(2 + 65);  // nobody can be that far
  for (const WireHeader& header : wrong) {
    const std::string payload(
        header.dtype() == WireHeader::BYTES ? 1 : sizeof(float), 'x');
    const int64_t before = inbox_->malformed();
    const auto stranger = Peer();
    Send(*stranger, header, payload);
    Send(*stranger, SegmentOf(2), "lost");
    const Time deadline = Soon();
    while (inbox_->malformed() == before && Now() < deadline) {
      AwaitMessage(deadline);
      const auto none = inbox_->TryNext(2);
      ASSERT_TRUE(none.ok());
      ASSERT_FALSE(none->has_value()) << header.ShortDebugString();
    }
    const auto peer = Peer();
    Send(*peer, SegmentOf(2), "good");
    EXPECT_EQ(NextPayload(2), "good");
    EXPECT_EQ(inbox_->malformed(), before + 1);
  }
}

TEST_F(SegmentInboxTest, DropsWhomItsOwnerDrops) {
  const auto stranger = Peer();
  Send(*stranger, SegmentOf(1), "1a..");
  inbox_->Drop(Next(1).peer, absl::InvalidArgumentError("not what was due"),
               -1);
  Send(*stranger, SegmentOf(1), "lost");
  const auto peer = Peer();
  Send(*peer, SegmentOf(1), "good");
  EXPECT_EQ(NextPayload(1), "good");
  EXPECT_EQ(inbox_->malformed(), 1);
}

TEST(SecuredSegmentInboxTest, DropsARankThatSpeaksAsAnother) {
  const Secret secret = Secret::Random();
  Context here, there;
  ASSERT_EQ(here.Secure(secret), absl::OkStatus());
  ASSERT_EQ(there.Secure(secret), absl::OkStatus());
  here.AllowWorkers({here.public_key(), there.public_key()});
  const auto inbox = SegmentInbox::Create(here, "127.0.0.1");
  ASSERT_TRUE(inbox.ok()) << inbox.status();
  (*inbox)->JoinJob(kJob);
  Socket& heard = (*inbox)->socket();
  const Time deadline = Soon();
  for (const uint32_t sender : {1, 0}) {
    auto peer = Socket::Connect(there, heard.endpoint(),
                                DataSocketOptions(here.public_key()));
    ASSERT_TRUE(peer.ok()) << peer.status();
    DataMessage message;
    message.header = SegmentOf(1);
    message.header.set_sender(sender);
    message.payload = Frame::Copy("1234");
    ASSERT_EQ(SendData(**peer, std::move(message)), absl::OkStatus());
    bool came = false;
    while (!came && (*inbox)->malformed() == 0 && Now() < deadline) {
      Wait({&heard}, absl::Span<const int>(), deadline).IgnoreError();
      const auto next = (*inbox)->TryNext(1);
      ASSERT_TRUE(next.ok()) << next.status();
      came = next->has_value();
    }
    EXPECT_EQ(came, sender == 1);
    EXPECT_EQ((*inbox)->malformed(), sender == 1 ? 0 : 1);
  }
}

}  // namespace
}  // namespace psring
