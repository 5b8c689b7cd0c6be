// collectives/message.h: what a rank says to others of collectives, and what
// they make of its calls.
#include <utility>

#include "collectives/call.h"
#include "collectives/flow_plan.h"
#include "collectives/message.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

using proto::CollectiveCall;
using proto::CollectiveHeader;

constexpr Addressee kHere = {.job_epoch = 7, .rank = 1, .size = 4};
// Of what is planned here, which takes memory.
constexpr int64_t kMaxBytes = 1 << 16;

CollectiveHeader GoodHeader() {
  CollectiveHeader header;
  header.set_kind(CollectiveHeader::CALL);
  header.set_job_epoch(kHere.job_epoch);
  header.set_sender(2);
  header.mutable_key()->set_name("loss");
  header.mutable_key()->set_set_size(4);
  CollectiveCall& call = *header.mutable_call();
  call.set_operation(CollectiveCall::ALLREDUCE);
  call.set_dtype(7);
  call.set_count(10);
  call.set_prescale(1);
  call.set_postscale(1);
  header.set_bytes(40);
  return header;
}

// `proven_rank`: of the sender's key; -1: it has none.
absl::StatusOr<CollectiveMessage> Parse(const std::string& header,
                                        const std::string& payload,
                                        int proven_rank = -1) {
  Frames frames;
  for (const std::string& part : {std::string("peer"), header, payload}) {
    frames.push_back(Frame::Copy(part));
  }
  return ParseCollective(std::move(frames), kHere, proven_rank);
}

// This rank has called the same.
void PlanAsCalled(const CollectiveCall& what) {
  if (what.count() > kMaxBytes / 8) return;
  Call call;
  call.name = "loss";
  call.set = {0, 1, 2, 3};
  call.index = kHere.rank;
  call.what = what;
  std::string in(kMaxBytes * 4, '\1'), out(kMaxBytes * 4, '\0');
  call.in = in.data();
  call.out = out.data();
  if (what.operation() == CollectiveCall::BROADCAST) call.in = call.out;
  if (what.operation() == CollectiveCall::ALLGATHER) call.bytes = {16};
  if (what.operation() == CollectiveCall::ALLTOALL) call.bytes = {4, 5, 0, 7};
  for (const Outflow& flow : PlanOutflows(call)) {
    Require(flow.to != call.index && flow.to >= 0 && flow.to < call.size(),
            "flows lead to others");
    Require(flow.size == 0 ||
                (flow.data >= call.in &&
                 flow.data + flow.size <= call.in + in.size()) ||
                (flow.data >= out.data() &&
                 flow.data + flow.size <= out.data() + out.size()),
            "flows come from the caller's memory");
  }
  std::vector<int64_t> bytes(4, 3);
  for (int from = 0; from < call.size(); ++from) {
    const int64_t known = BytesFrom(call, from);
    if (known >= 0) bytes[static_cast<size_t>(from)] = known;
  }
  if (what.operation() == CollectiveCall::ALLGATHER) bytes[1] = 16;
  if (what.operation() == CollectiveCall::ALLTOALL) bytes[1] = 5;
  Gathered gathered;
  Require(PlanInflows(call, bytes, gathered).ok(), "there is memory");
  int64_t end = 0;
  for (const Range& slice : PlanSum(call).slices) {
    Require(slice.begin == end && slice.begin <= slice.end,
            "slices follow each other");
    end = slice.end;
  }
}

void CheckCallOf(const CollectiveHeader& header) {
  const CollectiveCall mine = GoodHeader().call();
  const CollectiveCall& call = header.call();
  Require(Difference("loss", call, 2, call, 1).empty(),
          "a call agrees with itself");
  const std::string one = Difference("loss", call, 2, mine, 1);
  Require(one == Difference("loss", mine, 1, call, 2),
          "both see the same difference");
  if (header.key().set_size() == 4) PlanAsCalled(call);
}

// Where a sender's key proves its rank, its messages are accepted as without a
// key if they name that rank, and never if they name another.
void CheckSenders(const std::string& header, const std::string& payload,
                  const absl::StatusOr<CollectiveMessage>& without_key) {
  for (int proven = 0; proven <= kHere.size; ++proven) {
    const auto message = Parse(header, payload, proven);
    if (!message.ok()) RequireReason(message.status());
    const bool itself = without_key.ok() && without_key->header.sender() ==
                                                static_cast<uint32_t>(proven);
    Require(message.ok() == itself, "who has a key speaks as itself");
  }
}

}  // namespace

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds;
  const auto add = [&](const CollectiveHeader& header,
                       const std::string& payload) {
    seeds.push_back(
        Input().Text(header.SerializeAsString()).Rest(payload).bytes());
  };
  CollectiveHeader header = GoodHeader();
  add(header, std::string(40, 'x'));
  for (const auto operation :
       {CollectiveCall::ALLGATHER, CollectiveCall::BROADCAST,
        CollectiveCall::ALLTOALL, CollectiveCall::REDUCESCATTER,
        CollectiveCall::BARRIER}) {
    header.mutable_call()->set_operation(operation);
    header.mutable_call()->clear_counts();
    if (operation == CollectiveCall::REDUCESCATTER) {
      for (int count : {1, 2, 3, 4}) header.mutable_call()->add_counts(count);
    }
    add(header, "");
  }
  header.set_kind(CollectiveHeader::CHUNK);
  header.set_round(1);
  header.set_offset(4096);
  add(header, "bytes");
  header.set_kind(CollectiveHeader::FAIL);
  header.set_code(3);
  header.set_text("rank 2 calls something else");
  add(header, "");
  header.set_kind(CollectiveHeader::ANSWER);
  *header.add_waits()->mutable_key() = header.key();
  header.add_steps()->set_model("model");
  add(header, "");
  header.set_kind(CollectiveHeader::EVERYBODY_JOINED);
  header.set_sender(0);
  header.set_last(3);
  add(header, "");
  return seeds;
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  const std::string header = input.Text();
  const std::string payload = input.Rest();
  const auto message = fuzz::Parse(header, payload);
  fuzz::CheckSenders(header, payload, message);
  if (!message.ok()) {
    fuzz::RequireReason(message.status());
    return 0;
  }
  fuzz::Require(message->header.sender() < 4 && message->header.sender() != 1,
                "it comes from another rank");
  fuzz::Require(message->payload.view() == payload, "with its payload");
  fuzz::Require(fuzz::Parse(message->header.SerializeAsString(), payload).ok(),
                "what was read can be sent and read again");
  const CallKey key = KeyOf(message->header.key());
  fuzz::Require(KeyOf(ProtoOf(key)) == key, "a key survives");
  if (message->header.kind() == proto::CollectiveHeader::CALL) {
    fuzz::CheckCallOf(message->header);
  }
  return 0;
}
