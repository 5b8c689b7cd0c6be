#include "collectives/peer_links.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "collectives/mailbox.h"
#include "collectives/message.h"
#include "collectives/shared_chunks.h"
#include "collectives/tickets.h"
#include "common/clock.h"
#include "common/net/context.h"
#include "common/net/socket.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using proto::CollectiveHeader;

// Of the two ranks of a job on one host.
class PeerLinksTest : public ::testing::Test {
 protected:
  void Connect(bool first_shares, bool second_shares) {
    for (int rank = 0; rank < 2; ++rank) {
      auto inbox =
          Socket::Bind(context_, "127.0.0.1", 0, CollectiveSocketOptions());
      ASSERT_TRUE(inbox.ok()) << inbox.status();
      inboxes_[rank] = *std::move(inbox);
    }
    for (int rank = 0; rank < 2; ++rank) {
      jobs_[rank].rank = rank;
      for (const auto& inbox : inboxes_) {
        jobs_[rank].endpoints.push_back(inbox->endpoint());
        jobs_[rank].pids.push_back(getpid());
      }
      links_[rank].emplace(context_, jobs_[rank], *inboxes_[rank],
                           rank == 0 ? first_shares : second_shares);
    }
  }

  CollectiveMessage Receive(int rank) {
    EXPECT_TRUE(WaitForMessage({{inboxes_[rank].get()}}, {}, Soon()).value());
    auto frames = inboxes_[rank]->TryReceive();
    EXPECT_TRUE(frames.ok() && frames->has_value());
    auto message = ParseCollective(**std::move(frames), {0, rank, 2});
    EXPECT_TRUE(message.ok()) << message.status();
    return *std::move(message);
  }

  // Sends a chunk of `bytes` from rank 0 to rank 1; how many have gone.
  int64_t Send(absl::string_view bytes) {
    CollectiveHeader chunk;
    chunk.set_kind(CollectiveHeader::CHUNK);
    chunk.mutable_key()->set_name("x");
    chunk.mutable_key()->set_set_size(2);
    return links_[0]->SendChunk(1, std::move(chunk), bytes).bytes;
  }

  // Says it to the other rank.
  void Say(int rank, const std::string& text) {
    CollectiveHeader word;
    word.set_kind(CollectiveHeader::FAIL);
    word.set_text(text);
    word.set_code(1);
    word.mutable_key()->set_name("x");
    word.mutable_key()->set_set_size(2);
    links_[rank]->Send(1 - rank, std::move(word));
  }
  // What the other has said by letter; empty: nothing more.
  std::string NextText(int rank) {
    auto letter = links_[rank]->NextLetter();
    if (!letter.has_value()) return "";
    EXPECT_EQ(letter->rank, 1 - rank);
    if (!letter->frames.ok()) return letter->frames.status().ToString();
    const auto message =
        ParseCollective(*std::move(letter->frames), {0, rank, 2}, 1 - rank);
    return message.ok() ? message->header.text() : message.status().ToString();
  }
  static std::string Long(int number) {
    return absl::StrCat(number, std::string(kMaxTextBytes - 100, 'x'));
  }
  // Both ranks use their mailboxes.
  void ChangeOver() {
    Connect(true, true);
    Say(0, "first");
    links_[1]->OnOffer(Receive(1).header);
    EXPECT_EQ(Receive(1).header.text(), "first");
    links_[0]->OnOffer(Receive(0).header);
    for (const int rank : {0, 1}) {
      EXPECT_EQ(Receive(rank).header.kind(), CollectiveHeader::ACCEPT);
      links_[rank]->OnAccept(1 - rank);
    }
    for (const int rank : {0, 1}) {
      EXPECT_EQ(Receive(rank).header.kind(), CollectiveHeader::MAILBOX);
      EXPECT_EQ(links_[rank]->OnMailbox(1 - rank), absl::OkStatus());
    }
  }

  Context context_;
  CollectiveJob jobs_[2];
  std::unique_ptr<Socket> inboxes_[2];
  std::optional<PeerLinks> links_[2];
  const std::string bytes_ = std::string(2 * kSharedChunkBytes, 'b');
};

TEST_F(PeerLinksTest, ChunksGoThroughMemoryOnceTheOtherHasSaidThatItIsThere) {
  Connect(true, true);
  links_[0]->OnAccept(1);  // of nothing
  EXPECT_EQ(links_[0]->ShareWithCall(1, "bytes"), 0);
  EXPECT_EQ(Send(bytes_), kChunkBytes);
  const CollectiveMessage offer = Receive(1);
  ASSERT_EQ(offer.header.kind(), CollectiveHeader::OFFER);
  const CollectiveMessage in_message = Receive(1);
  EXPECT_EQ(in_message.header.slot_number(), 0);
  EXPECT_EQ(in_message.payload.size(), kChunkBytes);

  links_[1]->OnOffer(offer.header);
  ASSERT_EQ(Receive(0).header.kind(), CollectiveHeader::OFFER);
  ASSERT_EQ(Receive(0).header.kind(), CollectiveHeader::ACCEPT);
  links_[0]->OnAccept(1);
  EXPECT_EQ(Send(bytes_), kSharedChunkBytes);
  CollectiveMessage shared = Receive(1);
  EXPECT_EQ(shared.payload.size(), 0);
  ASSERT_EQ(links_[1]->TakeShared(shared), absl::OkStatus());
  EXPECT_TRUE(shared.payload.view() == bytes_.substr(0, kSharedChunkBytes));

  // What goes along with calls leaves slots for chunks; where none is free, a
  // chunk is a message again.
  int num_calls = 0;
  while (links_[0]->ShareWithCall(1, "bytes") > 0) ++num_calls;
  EXPECT_EQ(num_calls, kNumChunkSlots / 2 - 1);
  for (int i = kNumChunkSlots / 2; i < kNumChunkSlots; ++i) {
    EXPECT_EQ(Send(bytes_), kSharedChunkBytes);
  }
  EXPECT_EQ(Send(bytes_), kChunkBytes);
}

// The order of messages stays when a rank changes over to its mailbox.
TEST_F(PeerLinksTest, MessagesGoThroughMailboxesOnceBothHaveAccepted) {
  Connect(true, true);
  Say(0, "in a message");
  EXPECT_EQ(links_[1]->OnMailbox(0).code(), absl::StatusCode::kInvalidArgument);
  links_[1]->OnOffer(Receive(1).header);
  EXPECT_EQ(Receive(1).header.text(), "in a message");
  links_[0]->OnOffer(Receive(0).header);
  EXPECT_EQ(Receive(0).header.kind(), CollectiveHeader::ACCEPT);
  links_[0]->OnAccept(1);
  Say(0, "in the mailbox");
  EXPECT_EQ(Receive(1).header.kind(), CollectiveHeader::ACCEPT);
  links_[1]->OnAccept(0);
  Say(1, "back");
  EXPECT_EQ(NextText(1), "") << "rank 0 has not said so";
  EXPECT_EQ(Receive(1).header.kind(), CollectiveHeader::MAILBOX);
  EXPECT_EQ(links_[1]->OnMailbox(0), absl::OkStatus());
  EXPECT_FALSE(links_[1]->PrepareToSleep());
  EXPECT_EQ(NextText(1), "in the mailbox");
  EXPECT_TRUE(links_[1]->PrepareToSleep());
  EXPECT_EQ(links_[1]->OnMailbox(0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Receive(0).header.kind(), CollectiveHeader::MAILBOX);
  EXPECT_EQ(links_[0]->OnMailbox(1), absl::OkStatus());
  EXPECT_EQ(NextText(0), "back");
}

// Both say more than their mailboxes take, and wait with no other end than the
// doorbell.
TEST_F(PeerLinksTest, NobodySleepsThroughALetterOrRoomForOne) {
  ChangeOver();
  constexpr int kBatches = 200, kBatch = 40;
  std::thread ranks[2];
  for (int rank = 0; rank < 2; ++rank) {
    ranks[rank] = std::thread([this, rank] {
      int come = 0;
      for (int batch = 0; batch < kBatches; ++batch) {
        for (int i = 0; i < kBatch; ++i) Say(rank, Long(batch * kBatch + i));
        while (come < (batch + 1) * kBatch) {
          const std::string text = NextText(rank);
          if (!text.empty()) {
            ASSERT_TRUE(text == Long(come++));
            continue;
          }
          pollfd doorbell = {links_[rank]->doorbell_fd(), POLLIN, 0};
          if (links_[rank]->PrepareToSleep()) {
            ASSERT_EQ(poll(&doorbell, 1, 20'000), 1) << "nobody rings";
          }
          links_[rank]->Wake();
        }
      }
      const Time deadline = Soon();
      links_[rank]->Finish({}, deadline);
      EXPECT_LT(Now(), deadline);
    });
  }
  for (std::thread& rank : ranks) rank.join();
}

TEST_F(PeerLinksTest, TheEndWaitsForThoseWhoReadAndStay) {
  ChangeOver();
  std::thread reads([this] {
    const Time deadline = Soon();
    for (int i = 0; i < 100 && Now() < deadline;) {
      const std::string text = NextText(1);
      if (text.empty()) continue;
      EXPECT_TRUE(text == Long(i));
      ++i;
    }
  });
  for (int i = 0; i < 100; ++i) Say(0, Long(i));
  links_[0]->Finish({}, Soon());
  reads.join();
  EXPECT_EQ(NextText(1), "");

  for (int i = 0; i < 100; ++i) Say(0, Long(i));
  const Time start = Now();
  links_[0]->Finish({1}, start + absl::Seconds(20));
  EXPECT_LT(Now() - start, absl::Seconds(10)) << "rank 1 has left";

  // Both end, and each has something to say.
  for (int i = 0; i < 100; ++i) Say(1, Long(i));
  const Time deadline = Now() + absl::Seconds(20);
  std::thread other([&] { links_[1]->Finish({}, deadline); });
  links_[0]->Finish({}, deadline);
  other.join();
  EXPECT_LT(Now(), deadline);
}

TEST_F(PeerLinksTest, WhoSharesNoMemoryAcceptsAndOffersNone) {
  Connect(true, false);
  Send(bytes_);
  links_[1]->OnOffer(Receive(1).header);
  CollectiveMessage chunk = Receive(1);
  chunk.header.set_slot_number(1);
  EXPECT_EQ(links_[1]->TakeShared(chunk).code(),
            absl::StatusCode::kInvalidArgument);
  CollectiveHeader word;
  word.set_kind(CollectiveHeader::JOINED);
  links_[1]->Send(0, std::move(word));
  EXPECT_EQ(Receive(0).header.kind(), CollectiveHeader::JOINED);
}

TEST_F(PeerLinksTest, AnOfferOfSomethingElseIsNotAccepted) {
  Connect(true, true);
  const auto boxes = Mailboxes::Create(2);
  ASSERT_TRUE(boxes.ok()) << boxes.status();
  CollectiveHeader offer;
  offer.set_sender(0);
  offer.set_mailboxes((*boxes)->address().SerializeAsString());
  for (const char* text : {"", "no SharedMemory", "\x08\x01"}) {
    offer.set_shared_memory(text);
    links_[1]->OnOffer(offer);
  }
  const auto memory = SharedChunks::Create();
  ASSERT_TRUE(memory.ok()) << memory.status();
  offer.set_shared_memory((*memory)->address().SerializeAsString());
  offer.clear_mailboxes();
  links_[1]->OnOffer(offer);
  offer.set_mailboxes((*boxes)->address().SerializeAsString());
  jobs_[1].pids[0] = getppid();  // it is another process's
  links_[1]->OnOffer(offer);
  CollectiveMessage chunk;
  chunk.header.set_slot_number(1);
  chunk.header.set_bytes(1);
  EXPECT_EQ(links_[1]->TakeShared(chunk).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace psring
