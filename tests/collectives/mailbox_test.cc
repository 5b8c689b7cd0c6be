#include "collectives/mailbox.h"

#include <gtest/gtest.h>
#include <poll.h>

#include <cstring>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "collectives/message.h"

namespace psring {
namespace {

bool IsReadable(int fd) {
  pollfd item = {fd, POLLIN, 0};
  return poll(&item, 1, 0) == 1;
}

std::string Pattern(size_t size, uint32_t seed) {
  std::minstd_rand random(seed);
  std::string text(size, ' ');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

// What rank 0 of three writes for rank 2.
class MailboxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto own = Mailboxes::Create(3);
    ASSERT_TRUE(own.ok()) << own.status();
    own_ = *std::move(own);
    auto peer = PeerMailboxes::Map(own_->address(), 3);
    ASSERT_TRUE(peer.ok()) << peer.status();
    peer_ = *std::move(peer);
    auto writer = own_->Open(2);
    ASSERT_TRUE(writer.ok()) << writer.status();
    writer_.emplace(*std::move(writer));
    reader_.emplace(peer_->Open(2));
  }

  void ExpectNext(const std::string& header, const std::string& payload) {
    auto mail = reader_->Next();
    ASSERT_TRUE(mail.ok()) << mail.status();
    ASSERT_TRUE(mail->has_value());
    EXPECT_TRUE((*mail)->header.view() == header);
    EXPECT_TRUE((*mail)->payload.view() == payload);
  }
  void ExpectNothing() {
    auto mail = reader_->Next();
    ASSERT_TRUE(mail.ok()) << mail.status();
    EXPECT_FALSE(mail->has_value());
  }

  std::unique_ptr<Mailboxes> own_;
  std::unique_ptr<PeerMailboxes> peer_;
  std::optional<MailWriter> writer_;
  std::optional<MailReader> reader_;
};

TEST_F(MailboxTest, BringsWhatWasWrittenInOrder) {
  EXPECT_FALSE(reader_->HasInput());
  ExpectNothing();
  writer_->Write("header", "payload");
  writer_->Write("alone", "");
  EXPECT_TRUE(reader_->HasInput());
  EXPECT_FALSE(peer_->Open(1).HasInput());
  ExpectNext("header", "payload");
  ExpectNext("alone", "");
  EXPECT_FALSE(reader_->HasInput());
  ExpectNothing();
}

TEST_F(MailboxTest, KeepsWhatThereIsNoRoomFor) {
  const std::string payload = Pattern(kChunkBytes, 1);
  writer_->Write("large", payload);
  writer_->Write("small", "x");
  EXPECT_TRUE(writer_->keeps_any());
  EXPECT_FALSE(writer_->Flush());
  for (int turn = 0; turn < 10 && writer_->keeps_any(); ++turn) {
    ExpectNothing();
    EXPECT_TRUE(reader_->TakeWriterWaits());
    EXPECT_FALSE(reader_->TakeWriterWaits());
    EXPECT_TRUE(writer_->Flush());
  }
  EXPECT_FALSE(writer_->keeps_any());
  ExpectNext("large", payload);
  ExpectNext("small", "x");
}

TEST_F(MailboxTest, RingsForWhoSleeps) {
  peer_->Notify();
  EXPECT_FALSE(IsReadable(own_->fd()));
  EXPECT_TRUE(own_->Sleep(1));
  peer_->Notify();
  EXPECT_TRUE(IsReadable(own_->fd()));
  own_->Wake();
  EXPECT_FALSE(IsReadable(own_->fd()));
  EXPECT_TRUE(own_->Sleep(1));
  own_->Wake();
  peer_->Notify();
  EXPECT_FALSE(IsReadable(own_->fd()));
}

// Both sides sleep whenever they have nothing to do.
TEST_F(MailboxTest, LosesNothingBetweenThreads) {
  constexpr int kMessages = 20'000;
  auto back = Mailboxes::Create(3);  // the reader's own
  ASSERT_TRUE(back.ok());
  auto to_reader = PeerMailboxes::Map((*back)->address(), 3);
  ASSERT_TRUE(to_reader.ok());
  const auto size_of = [](int i) { return (i * 7919) % 5000; };
  const auto await = [](Mailboxes& own) {
    pollfd item = {own.fd(), POLLIN, 0};
    ASSERT_EQ(poll(&item, 1, 20'000), 1) << "nobody rings";
  };
  std::thread writing([&] {
    for (int i = 0; i < kMessages; ++i) {
      writer_->Write(absl::StrCat(i), std::string(size_of(i), 'a' + i % 26));
      (*to_reader)->Notify();
      while (writer_->keeps_any()) {
        const bool asleep = own_->Sleep(1);
        if (writer_->Flush()) {
          (*to_reader)->Notify();
        } else if (asleep) {
          ASSERT_NO_FATAL_FAILURE(await(*own_));
        }
        own_->Wake();
      }
    }
  });
  for (int i = 0; i < kMessages;) {
    auto mail = reader_->Next();
    ASSERT_TRUE(mail.ok()) << mail.status();
    if (reader_->TakeWriterWaits()) peer_->Notify();
    if (mail->has_value()) {
      ASSERT_EQ((*mail)->header.view(), absl::StrCat(i));
      ASSERT_TRUE((*mail)->payload.view() ==
                  std::string(size_of(i), 'a' + i % 26));
      ++i;
      continue;
    }
    if ((*back)->Sleep(1) && !reader_->HasInput()) {
      ASSERT_NO_FATAL_FAILURE(await(**back));
    }
    (*back)->Wake();
  }
  writing.join();
}

TEST_F(MailboxTest, IsReadAfterItsWriterHasGone) {
  writer_->Write("last", "word");
  writer_.reset();
  own_.reset();
  ExpectNext("last", "word");
  peer_->Notify();  // nobody
}

TEST_F(MailboxTest, RefusesSizesThatNoMessageHas) {
  writer_->Write(std::string(kChunkBytes + 1, 'h'), "");
  EXPECT_EQ(reader_->Next().status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(reader_->Next().status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(MailboxTest, IsNotThatOfAnotherMemory) {
  proto::SharedMemory other_number = own_->address();
  other_number.set_nonce(other_number.nonce() + 1);
  proto::SharedMemory no_doorbell = own_->address();
  no_doorbell.clear_doorbell_fds();
  proto::SharedMemory other_doorbell = own_->address();
  other_doorbell.set_doorbell_fds(0, 1 << 30);
  for (const auto& address : {other_number, no_doorbell, other_doorbell}) {
    EXPECT_EQ(PeerMailboxes::Map(address, 3).status().code(),
              absl::StatusCode::kUnavailable);
  }
  EXPECT_EQ(PeerMailboxes::Map(own_->address(), 4).status().code(),
            absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace psring
