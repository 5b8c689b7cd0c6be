// collectives/operation.h: three ranks call the same, and their messages come
// in any order that sockets allow. All get what was asked for, with nothing
// left on its way; or one of them says anything, and the others survive it.
#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "collectives/call.h"
#include "collectives/early_calls.h"
#include "collectives/message.h"
#include "collectives/operation.h"
#include "collectives/outbox.h"
#include "common/clock.h"
#include "tests/fuzz/collective_plan.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

using proto::CollectiveCall;
using proto::CollectiveHeader;

constexpr uint64_t kEpoch = 7;

struct Sent {
  CollectiveHeader header;
  std::string payload;
  bool shared = false;  // it lies in the sender's memory
};

// By sender and receiver: in order.
using Queues = std::map<std::pair<int, int>, std::deque<Sent>>;

class Mail : public Outbox {
 public:
  Mail(int rank, Queues& queues)
      : Outbox(kRanks), rank_(rank), queues_(queues) {}

  void Send(int rank, CollectiveHeader header, Frame payload) override {
    Require(rank >= 0 && rank < kRanks && rank != rank_, "it goes to another");
    header.set_job_epoch(kEpoch);
    header.set_sender(static_cast<uint32_t>(rank_));
    const bool shared = header.slot_number() > 0;
    queues_[{rank_, rank}].push_back(
        {std::move(header), shared ? shared_ : std::string(payload.view()),
         shared});
  }
  uint32_t ShareWithCall(int rank, absl::string_view bytes) override {
    if (!Shares(rank)) return 0;
    shared_ = std::string(bytes);
    return 1;
  }
  SentChunk SendChunk(int rank, CollectiveHeader header,
                      absl::string_view bytes) override {
    if (!Shares(rank)) return Outbox::SendChunk(rank, std::move(header), bytes);
    shared_ = std::string(bytes.substr(0, kSharedChunkBytes));
    header.set_slot_number(1);
    header.set_bytes(static_cast<int64_t>(shared_.size()));
    Send(rank, std::move(header), Frame());
    return {static_cast<int64_t>(shared_.size()), true};
  }

 private:
  // Ranks 0 and 1 are on one host.
  bool Shares(int rank) const { return rank + rank_ == 1; }
  int64_t FlowWindow(int rank) const override {
    return Shares(rank) ? kSharedFlowWindow : kFlowWindow;
  }

  const int rank_;
  Queues& queues_;
  std::string shared_;  // what goes next
};

class Rank {
 public:
  Rank(int rank, const CollectivePlan& plan, Queues& queues)
      : rank_(rank), plan_(plan), mail_(rank, queues), in_(plan.Brings(rank)) {
    Call call;
    call.name = "loss";
    call.set = {0, 1, 2};
    call.index = rank;
    call.what = plan.what;
    if (!plan.bytes.empty()) call.bytes = plan.bytes[rank];
    out_ = in_;
    if (!plan.in_place()) out_.assign(plan.Gets(rank).size(), '\0');
    call.in = plan.in_place() ? out_.data() : in_.data();
    call.out = out_.data();
    operation_ = std::make_unique<Operation>(
        CallKey{DigestOf(call.set), call.name, 0, kRanks}, std::move(call), 1,
        Time::FromNanos(0) + absl::Hours(1),
        std::unique_ptr<char, void (*)(void*)>(nullptr, std::free));
  }

  Operation& operation() { return *operation_; }
  Outbox& outbox() { return mail_; }

  void Start() {
    started_ = true;
    early_.Called(operation_->key());
    EarlyCalls::Operation early = early_.Take(operation_->key());
    operation_->Start(mail_, 0);
    for (CollectiveMessage& call : early.calls) {
      early_status_.Update(operation_->OnCall(mail_, std::move(call), now_));
    }
    Require(early_.Take(operation_->key()).calls.empty(), "they come once");
  }
  bool started() const { return started_; }

  absl::Status Hear(CollectiveMessage message) {
    if (!started_) {
      if (message.header.kind() != CollectiveHeader::CALL) {
        return absl::InvalidArgumentError("nobody has called it here");
      }
      return early_.Add(std::move(message));
    }
    switch (message.header.kind()) {
      case CollectiveHeader::CALL:
        return operation_->OnCall(mail_, std::move(message), now_);
      case CollectiveHeader::CHUNK:
        return operation_->OnChunk(mail_, std::move(message));
      case CollectiveHeader::ACK:
        return operation_->OnAck(mail_, message.header);
      default:
        return absl::OkStatus();  // not the operation's
    }
  }

  void RequireResult() {
    Require(early_status_.ok(), "it has heard those who came first");
    Require(mail_.bytes_on_their_way() == 0, "all has arrived");
    Require(operation_->Awaited().empty(), "nobody is waited for");
    const std::string expected = plan_.Gets(rank_);
    if (plan_.bytes.empty()) return Require(out_ == expected, "it is right");
    const Gathered gathered = operation_->TakeGathered();
    Require(gathered.sizes == plan_.SizesFor(rank_), "sizes are as brought");
    Require(
        absl::string_view(gathered.bytes.get(), expected.size()) == expected,
        "it is what all have brought");
  }

 private:
  const int rank_;
  const CollectivePlan& plan_;
  Mail mail_;
  const Time now_ = Time::FromNanos(0);
  const std::string in_;
  std::string out_;
  std::unique_ptr<Operation> operation_;
  EarlyCalls early_;
  absl::Status early_status_;  // of those
  bool started_ = false;
};

// A message that the liar has sent, changed.
void Lie(Bytes& input, Sent& sent) {
  CollectiveHeader& header = sent.header;
  switch (input.Below(6)) {
    case 0:
      header.set_bytes(input.Integer());
      break;
    case 1:
      header.set_offset(input.Integer());
      break;
    case 2:
      header.set_round(input.Byte());
      break;
    case 3:
      sent.payload.resize(input.Number(2));
      break;
    case 4:
      header.mutable_call()->MergeFromString(input.Text());
      break;
    default:
      header.MergeFromString(input.Text());
  }
  // What a rank announces may be true: memory is made for it.
  header.set_bytes(std::min(header.bytes(), kMostBytes));
}

class Job {
 public:
  explicit Job(Bytes& input)
      : plan_(SomePlan(input)), liar_(input.Below(kRanks + 1) - 1) {
    Require(CheckCall(plan_.what, kRanks).ok(), "the call is right");
    for (int rank = 0; rank < kRanks; ++rank) {
      ranks_.push_back(std::make_unique<Rank>(rank, plan_, queues_));
    }
  }

  void StartAll() {
    for (int rank = 0; rank < kRanks; ++rank) Start(rank);
  }
  void Start(int rank) {
    Rank& who = *ranks_[static_cast<size_t>(rank)];
    if (!who.started()) who.Start();
  }

  // The next message from one to the other, if there is any.
  bool Deliver(int from, int to, Bytes& input) {
    auto& queue = queues_[{from, to}];
    if (queue.empty()) return false;
    Sent sent = std::move(queue.front());
    queue.pop_front();
    if (from == liar_) {
      switch (input.Below(8)) {
        case 1:
          Lie(input, sent);
          break;
        case 2:
          SayFirstPart(to, input.Number(2), sent);
          break;
        default:
          break;
      }
    }
    Say(from, to, std::move(sent));
    return true;
  }

  // Something that the liar has made up.
  void MakeUp(Bytes& input) {
    if (liar_ < 0) return;
    Sent sent;
    sent.header.set_job_epoch(kEpoch);
    sent.header.set_sender(static_cast<uint32_t>(liar_));
    *sent.header.mutable_call() = plan_.what;
    sent.header.mutable_key()->set_name("loss");
    sent.header.mutable_key()->set_set_size(kRanks);
    sent.header.set_kind(
        static_cast<CollectiveHeader::Kind>(1 + input.Below(3)));
    sent.header.set_round(static_cast<uint32_t>(input.Below(2)));
    sent.header.set_offset(SomeSize(input));
    sent.payload.resize(input.Number(2));
    Lie(input, sent);
    Say(liar_, (liar_ + 1 + input.Below(2)) % kRanks, std::move(sent));
  }

  bool SendSome(int rank) {
    Rank& who = *ranks_[static_cast<size_t>(rank)];
    return who.started() && who.operation().SendSome(who.outbox());
  }

  // Delivers all that is left, in any order; everybody then has the result.
  void End(Bytes& input) {
    StartAll();
    bool any = true;
    while (any) {
      any = false;
      for (int from = 0; from < kRanks; ++from) {
        any |= SendSome(from);
        for (int to = 0; to < kRanks; ++to) any |= Deliver(from, to, input);
      }
    }
    for (const auto& rank : ranks_) {
      if (lied_) {
        rank->operation().Awaited();
        rank->operation().Abandon(rank->outbox());
        continue;
      }
      Require(rank->operation().Failure(Time::FromNanos(0)).ok(),
              "nothing is wrong with it");
      Require(rank->operation().complete(), "it comes to its end");
      rank->RequireResult();
    }
  }

 private:
  // Of a chunk, the first bytes, with the rest to follow.
  void SayFirstPart(int to, uint64_t bytes, Sent& rest) {
    if (bytes >= rest.payload.size()) return;
    Sent first = rest;
    first.payload.resize(bytes);
    rest.payload.erase(0, bytes);
    rest.header.set_offset(rest.header.offset() + static_cast<int64_t>(bytes));
    Say(liar_, to, std::move(first));
  }

  void Say(int from, int to, Sent sent) {
    Frames frames;
    frames.push_back(Frame::Copy("peer"));
    frames.push_back(Frame::Copy(sent.header.SerializeAsString()));
    frames.push_back(Frame::Copy(sent.shared ? "" : sent.payload));
    auto message = ParseCollective(std::move(frames), {kEpoch, to, kRanks},
                                   /*proven_rank=*/from);
    lied_ |= from == liar_;
    absl::Status status = message.status();
    if (status.ok() && sent.shared) {
      message->payload = Frame::Copy(sent.payload);
      if (message->header.bytes() !=
          static_cast<int64_t>(sent.payload.size())) {
        return;  // its memory has other bytes than it says
      }
    }
    if (status.ok()) {
      status = ranks_[static_cast<size_t>(to)]->Hear(*std::move(message));
    }
    if (status.ok()) return;
    RequireReason(status);
    Require(lied_, "who does right is heard");
  }

  const CollectivePlan plan_;
  const int liar_;  // -1: nobody
  bool lied_ = false;
  Queues queues_;
  std::vector<std::unique_ptr<Rank>> ranks_;
};

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (int operation = 0; operation < 6; ++operation) {
    for (const int count : {2, 4, 5, 6}) {
      for (const int liar : {0, 1, 3}) {
        Input input;
        input.Byte(operation).Byte(count).Byte(1);
        if (operation == 0) input.Byte(count / 2);
        if (operation == 2) input.Byte(1);
        if (operation == 4) input.Byte(3).Byte(5);
        const int sizes = operation == 1 ? 3 : operation == 3 ? 9 : 0;
        for (int i = 0; i < sizes; ++i) input.Byte(count - i % 3);
        input.Byte(liar);
        for (int rank = 0; rank < kRanks; ++rank) input.Byte(0).Byte(rank);
        for (int turn = 0; turn < 3; ++turn) {
          for (int from = 0; from < kRanks; ++from) {
            input.Byte(2).Byte(from);
            for (const int to : {(from + 1) % kRanks, (from + 2) % kRanks}) {
              input.Byte(1).Byte(from).Byte(to);
              if (from + 1 == liar) input.Byte(turn == 0 ? 0 : 3 - turn);
              if (from + 1 == liar && turn == 1) input.Number(100, 2);
              if (from + 1 == liar && turn == 2) input.Byte(1).Integer(4);
            }
          }
        }
        seeds.push_back(input.bytes());
      }
    }
  }
  return seeds;
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  fuzz::Job job(input);
  while (!input.empty()) {
    switch (input.Below(4)) {
      case 0:
        job.Start(input.Below(fuzz::kRanks));
        break;
      case 1: {
        const int from = input.Below(fuzz::kRanks);
        job.Deliver(from, input.Below(fuzz::kRanks), input);
        break;
      }
      case 2:
        job.SendSome(input.Below(fuzz::kRanks));
        break;
      default:
        job.MakeUp(input);
    }
  }
  job.End(input);
  return 0;
}
