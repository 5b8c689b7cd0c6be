// common/cluster/member_news.h: a coordinator says anything at any time, while
// the process asks what it asks.
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/member_news.h"
#include "common/cluster/membership.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

using proto::ControlMessage;

constexpr int kGathers = 3;

// What a correct coordinator would say; the fuzzer then changes it.
ControlMessage Welcome(int workers) {
  ControlMessage message;
  for (int rank = 0; rank < workers; ++rank) {
    message.mutable_welcome()->add_workers()->set_rank(rank);
  }
  message.mutable_welcome()->add_servers()->set_rank(0);
  return message;
}

class Process {
 public:
  explicit Process(proto::Role role) : role_(role), news_(role, "c") {}

  bool failed() const { return failed_; }

  void Hear(const ControlMessage& message, Time now) {
    const absl::Status status = news_.Take(message, now);
    failed_ = !status.ok();
    if (failed_) {
      if (!message.has_job_end()) RequireReason(status);
      Require(!news_.ended(), "it ends well or badly");
    }
    Check();
  }

  void Ask(int gather) {
    news_.AwaitGathered(absl::StrCat(gather));
    asked_.insert(gather);
  }
  void Look(int gather) {
    const auto answer = news_.TakeGathered(absl::StrCat(gather));
    Require(!answer.has_value() || asked_.contains(gather),
            "only what was asked is answered");
    asked_.erase(gather);
    Require(!news_.HasGathered(absl::StrCat(gather)),
            "an answer is taken once");
  }

 private:
  void Check() {
    if (was_ended_) Require(news_.ended(), "what has ended stays so");
    was_ended_ = news_.ended();
    for (int gather = 0; gather < kGathers; ++gather) {
      Require(
          !news_.HasGathered(absl::StrCat(gather)) || asked_.contains(gather),
          "nothing else is kept");
    }
    if (!news_.arrived().has_value()) {
      return Require(news_.workers_left().empty(), "nobody leaves before");
    }
    const proto::Welcome& job = *news_.arrived();
    const int size =
        role_ == proto::WORKER ? job.workers_size() : job.servers_size();
    Require(job.rank() >= 0 && job.rank() < size, "it has a place");
    if (rank_ < 0) rank_ = job.rank();
    Require(job.rank() == rank_, "and keeps it");
    for (const int rank : news_.workers_left()) {
      Require(rank >= 0 && rank < job.workers_size(), "workers leave");
    }
  }

  const proto::Role role_;
  MemberNews news_;
  std::set<int> asked_;
  int rank_ = -1;
  bool was_ended_ = false;
  bool failed_ = false;
};

// A message that fits, or any bytes that are one.
bool MessageOf(Bytes& input, ControlMessage& message) {
  switch (input.Below(7)) {
    case 0:
      message = Welcome(input.Below(4));
      break;
    case 1:
      message.mutable_seat()->set_rank(static_cast<int>(input.Integer()));
      break;
    case 2:
      message.mutable_gathered()->set_name(absl::StrCat(input.Below(kGathers)));
      if (input.Flag()) message.mutable_gathered()->add_payloads("theirs");
      break;
    case 3:
      message.mutable_announce()->set_name(kWorkerLeft);
      message.mutable_announce()->set_payload(input.Text());
      break;
    case 4:
      message.mutable_heartbeat_ack()->set_sent_ns(input.Integer());
      message.mutable_heartbeat_ack()->set_heard_ns(input.Integer());
      break;
    case 5:
      message.mutable_job_end()->set_error(input.Text());
      message.mutable_job_end()->set_hang(input.Flag());
      break;
    default:
      return message.ParseFromString(input.Text());
  }
  return true;
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  for (const int role : {0, 1}) {
    for (const char* end : {"", "worker 1 failed"}) {
      Input input;
      input.Byte(role).Byte(0).Byte(0).Byte(3).Byte(0).Byte(1).Integer(0);
      input.Byte(1).Byte(0).Byte(0).Byte(2).Byte(0).Byte(1).Byte(2).Byte(0);
      input.Byte(0).Byte(3).Text("2,1");
      input.Byte(0).Byte(4).Integer(1000).Integer(5000);
      input.Byte(0).Byte(5).Text(end).Byte(1);
      seeds.push_back(input.bytes());
    }
  }
  ControlMessage refusal;
  refusal.mutable_refuse()->set_reason("the job is full");
  Input input;
  input.Byte(1).Byte(0).Byte(6).Text(refusal.SerializeAsString());
  seeds.push_back(input.bytes());
  return seeds;
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  fuzz::Process process(input.Flag() ? proto::PS : proto::WORKER);
  Time now = Time::FromNanos(1'000'000'000);
  while (!input.empty() && !process.failed()) {
    switch (input.Below(3)) {
      case 0: {
        proto::ControlMessage message;
        now += absl::Milliseconds(1);
        if (fuzz::MessageOf(input, message)) process.Hear(message, now);
        break;
      }
      case 1:
        process.Ask(input.Below(fuzz::kGathers));
        break;
      default:
        process.Look(input.Below(fuzz::kGathers));
    }
  }
  return 0;
}
