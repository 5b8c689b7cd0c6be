// One rank's side of an operation of two, which hears what the test says.
#include "collectives/operation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "collectives/call.h"
#include "collectives/message.h"
#include "collectives/outbox.h"
#include "common/clock.h"
#include "common/model/layout.h"

namespace psring {
namespace {

using proto::CollectiveCall;
using proto::CollectiveHeader;
using Ranks = std::vector<int32_t>;

class Mail : public Outbox {
 public:
  Mail() : Outbox(3) {}
  void Send(int, CollectiveHeader header, Frame) override {
    sent.push_back(std::move(header));
  }
  SentChunk SendChunk(int rank, CollectiveHeader header,
                      absl::string_view bytes) override {
    if (!shares) return Outbox::SendChunk(rank, std::move(header), bytes);
    sent.push_back(std::move(header));
    return {static_cast<int64_t>(bytes.size()), true};
  }
  int64_t FlowWindow(int) const override {
    return shares ? kSharedFlowWindow : kFlowWindow;
  }

  std::vector<CollectiveHeader> sent;
  bool shares = false;
};

// A broadcast by rank 0 of three windows.
class OperationTest : public ::testing::Test {
 protected:
  static Call CallOf(int index, char* data, int64_t count = kBytes) {
    Call call;
    call.name = "x";
    call.set = {0, 1};
    call.index = index;
    call.what.set_operation(CollectiveCall::BROADCAST);
    call.what.set_count(count);
    call.what.set_dtype(static_cast<uint32_t>(DType::kUint8));
    call.in = call.out = data;
    return call;
  }

  void Start(int index, int64_t count = kBytes) {
    index_ = index;
    operation_ = std::make_unique<Operation>(CallKey{},
                                             CallOf(index, data_.data(), count),
                                             1, Time::InfiniteFuture());
    operation_->Start(mail_, 0);
  }

  // What the other rank says.
  CollectiveHeader Header() const {
    CollectiveHeader header;
    header.set_sender(static_cast<uint32_t>(1 - index_));
    return header;
  }
  void HearCall(int64_t count = kBytes) {
    CollectiveMessage message;
    message.header = Header();
    *message.header.mutable_call() = CallOf(1 - index_, nullptr).what;
    message.header.mutable_call()->set_count(count);
    message.header.set_bytes(index_ == 0 ? 0 : count);
    EXPECT_EQ(operation_->OnCall(mail_, std::move(message), now_),
              absl::OkStatus());
  }
  void HearAck(int64_t offset) {
    CollectiveHeader header = Header();
    header.set_offset(offset);
    EXPECT_EQ(operation_->OnAck(mail_, header), absl::OkStatus());
  }
  void HearChunk(int64_t offset) {
    CollectiveMessage message;
    message.header = Header();
    message.header.set_offset(offset);
    const std::vector<char> bytes(kChunkBytes, 'b');
    message.payload = Frame::Copy({bytes.data(), bytes.size()});
    EXPECT_EQ(operation_->OnChunk(mail_, std::move(message)), absl::OkStatus());
  }

  void SendAll() {
    while (operation_->SendSome(mail_)) {
    }
  }

  static constexpr int64_t kBytes = 3 * kFlowWindow;

  const Time now_ = Time::FromNanos(0);
  int index_ = 0;
  std::vector<char> data_ = std::vector<char>(kBytes, 'a');
  Mail mail_;
  std::unique_ptr<Operation> operation_;
};

TEST_F(OperationTest, KeepsAWindowOnItsWay) {
  Start(0);
  EXPECT_FALSE(operation_->SendSome(mail_));  // nobody has called it
  HearCall();
  SendAll();
  EXPECT_EQ(mail_.bytes_on_their_way(), kFlowWindow);
  for (int64_t at = kChunkBytes; at <= kBytes; at += kChunkBytes) {
    HearAck(at);
    SendAll();
    EXPECT_EQ(mail_.bytes_on_their_way(), std::min(kFlowWindow, kBytes - at));
  }
  EXPECT_TRUE(operation_->complete());
}

// What has gone in a message before is.
TEST_F(OperationTest, AwaitsNoAcknowledgementOfWhatIsReadInItsMemory) {
  for (const bool message_first : {false, true}) {
    mail_.shares = !message_first;
    Start(0);
    HearCall();
    EXPECT_TRUE(operation_->SendSome(mail_));
    mail_.shares = true;
    SendAll();
    EXPECT_TRUE(operation_->not_needed());
    EXPECT_EQ(operation_->complete(), !message_first);
    EXPECT_EQ(operation_->Awaited(), message_first ? Ranks{1} : Ranks{});
    if (message_first) HearAck(kChunkBytes);
    EXPECT_TRUE(operation_->complete());
    operation_->Abandon(mail_);
    EXPECT_EQ(mail_.bytes_on_their_way(), 0);
  }
}

TEST_F(OperationTest, SendsOneChunkWhereOthersFillThePeersWindow) {
  mail_.AddChunks(1, kPeerWindow);
  Start(0);
  HearCall();
  SendAll();
  EXPECT_EQ(mail_.bytes_on_their_way(), kPeerWindow + kChunkBytes);
  HearAck(kChunkBytes);
  SendAll();
  EXPECT_EQ(mail_.bytes_on_their_way(), kPeerWindow + kChunkBytes);
  operation_->Abandon(mail_);
  EXPECT_EQ(mail_.bytes_on_their_way(), kPeerWindow);
}

// It goes along with the call, and is on its way until the other has called.
TEST_F(OperationTest, CountsWhatIsSmallOnce) {
  Start(0, 100);
  EXPECT_EQ(mail_.bytes_on_their_way(), 100);
  operation_->Abandon(mail_);
  EXPECT_EQ(mail_.bytes_on_their_way(), 0);
  Start(0, 100);
  HearCall(100);
  EXPECT_EQ(mail_.bytes_on_their_way(), 0);
  operation_->Abandon(mail_);
  EXPECT_EQ(mail_.bytes_on_their_way(), 0);
}

// Rank 1 has called and sent a chunk of rank 0's slice, of which rank 2's is
// still to come, or even its call.
TEST_F(OperationTest, AcknowledgesWhatItHoldsWhenItLetsGo) {
  for (const bool agreed : {false, true}) {
    Call call;
    call.name = "x";
    call.set = {0, 1, 2};
    call.what.set_operation(CollectiveCall::REDUCESCATTER);
    call.what.set_dtype(static_cast<uint32_t>(DType::kUint8));
    call.what.set_prescale(1);
    call.what.set_postscale(1);
    call.what.set_count(kBytes);
    for (const int64_t count : {kBytes, int64_t{0}, int64_t{0}}) {
      call.what.add_counts(count);
    }
    call.in = call.out = data_.data();
    Operation operation(CallKey{}, call, 1, Time::InfiniteFuture());
    operation.Start(mail_, 0);
    CollectiveMessage message;
    message.header.set_sender(1);
    *message.header.mutable_call() = call.what;
    message.header.set_bytes(kBytes);
    for (uint32_t rank = 1; rank <= (agreed ? 2 : 1); ++rank) {
      CollectiveMessage its;
      its.header = message.header;
      its.header.set_sender(rank);
      EXPECT_EQ(operation.OnCall(mail_, std::move(its), now_),
                absl::OkStatus());
    }
    EXPECT_EQ(operation.agreed(), agreed);
    message.payload = Frame::OfSize(kChunkBytes);
    EXPECT_EQ(operation.OnChunk(mail_, std::move(message)), absl::OkStatus());
    mail_.sent.clear();
    ASSERT_TRUE(operation.not_needed());
    operation.LetGo(mail_);
    ASSERT_EQ(mail_.sent.size(), 1);
    EXPECT_EQ(mail_.sent[0].kind(), CollectiveHeader::ACK);
    EXPECT_EQ(mail_.sent[0].offset(), kChunkBytes);
  }
}

TEST_F(OperationTest, RefusesAcknowledgementsOfWhatIsNotOnItsWay) {
  Start(0);
  HearCall();
  SendAll();
  HearAck(kChunkBytes);
  CollectiveHeader ack = Header();
  for (const int64_t offset : {int64_t{0}, kChunkBytes, kBytes}) {
    ack.set_offset(offset);
    EXPECT_TRUE(absl::IsInvalidArgument(operation_->OnAck(mail_, ack)))
        << offset;
  }
  EXPECT_EQ(mail_.bytes_on_their_way(), kFlowWindow - kChunkBytes);
}

TEST_F(OperationTest, AwaitsWhoHasNotCalledOrAcknowledged) {
  Start(0);
  EXPECT_EQ(operation_->Awaited(), Ranks{1});
  HearCall();
  EXPECT_EQ(operation_->Awaited(), Ranks{});
  SendAll();
  EXPECT_EQ(operation_->Awaited(), Ranks{1});
  HearAck(kFlowWindow);
  EXPECT_EQ(operation_->Awaited(), Ranks{});
}

TEST_F(OperationTest, AwaitsWhoHasNotSentEverything) {
  Start(1);
  HearCall();
  for (int64_t at = 0; at < kBytes; at += kChunkBytes) {
    EXPECT_EQ(operation_->Awaited(), Ranks{0}) << at;
    HearChunk(at);
  }
  EXPECT_EQ(operation_->Awaited(), Ranks{});
  EXPECT_EQ(data_, std::vector<char>(kBytes, 'b'));
}

TEST_F(OperationTest, LeavesItToTheFirstToSayWhatDiffers) {
  Start(0);
  HearCall(kBytes - 1);
  EXPECT_TRUE(absl::IsFailedPrecondition(operation_->Failure(now_)));
  Start(1);
  HearCall(kBytes - 1);
  EXPECT_EQ(operation_->Failure(now_), absl::OkStatus());
  EXPECT_EQ(operation_->Failure(now_ + kVerdictDelay - absl::Milliseconds(1)),
            absl::OkStatus());
  EXPECT_TRUE(
      absl::IsFailedPrecondition(operation_->Failure(now_ + kVerdictDelay)));
}

}  // namespace
}  // namespace psring
