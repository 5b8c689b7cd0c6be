#include "collectives/peer_links.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "collectives/message.h"
#include "collectives/shared_chunks.h"
#include "collectives/tickets.h"
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
  CollectiveHeader offer;
  offer.set_sender(0);
  for (const char* text : {"", "no SharedMemory", "\x08\x01"}) {
    offer.set_shared_memory(text);
    links_[1]->OnOffer(offer);
  }
  const auto memory = SharedChunks::Create();
  ASSERT_TRUE(memory.ok()) << memory.status();
  jobs_[1].pids[0] = getppid();  // it is another process's
  offer.set_shared_memory((*memory)->address().SerializeAsString());
  links_[1]->OnOffer(offer);
  CollectiveMessage chunk;
  chunk.header.set_slot_number(1);
  chunk.header.set_bytes(1);
  EXPECT_EQ(links_[1]->TakeShared(chunk).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace psring
