#include "collectives/operation.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/reduction.h"
#include "common/clock.h"

namespace psring {
namespace {

using proto::CollectiveHeader;

}  // namespace

Operation::Operation(CallKey key, Call call, int64_t handle, Time deadline,
                     Scratch scratch)
    : key_(std::move(key)),
      call_(std::move(call)),
      handle_(handle),
      scratch_(std::move(scratch)),
      deadline_(deadline),
      callers_(call_.set.size()),
      sum_(PlanSum(call_)) {
  callers_[call_.index].called = true;
  if (call_.what.operation() == proto::CollectiveCall::ALLGATHER) {
    callers_[call_.index].bytes = call_.bytes[0];
  } else if (call_.what.operation() == proto::CollectiveCall::ALLTOALL) {
    callers_[call_.index].bytes = call_.bytes[call_.index];
  }
}

void Operation::Start(Outbox& outbox, uint64_t join_round) {
  for (const Outflow& flow : PlanOutflows(call_)) {
    Sending sending;
    sending.flow = flow;
    const int rank = call_.set[sending.flow.to];
    if (sending.flow.round == 0) {
      CollectiveHeader header;
      header.set_kind(CollectiveHeader::CALL);
      *header.mutable_key() = ProtoOf(key_);
      *header.mutable_call() = call_.what;
      header.set_bytes(sending.flow.size);
      header.set_join_round(join_round);
      Frame payload;
      const absl::string_view bytes(sending.flow.data,
                                    static_cast<size_t>(sending.flow.size));
      if (sending.flow.size <= kEagerBytes &&
          outbox.HasRoomForEager(rank, sending.flow.size)) {
        payload = Frame::Copy(bytes);
        sending.eager = true;
        outbox.AddEager(rank, sending.flow.size);
      } else if (sending.flow.size > kEagerBytes &&
                 sending.flow.size <= kSharedChunkBytes) {
        header.set_slot_number(outbox.ShareWithCall(rank, bytes));
      }
      if (sending.eager || header.slot_number() > 0) {
        sending.sent = sending.acked = sending.flow.size;
      }
      outbox.Send(rank, std::move(header), std::move(payload));
    }
    sending_.push_back(std::move(sending));
  }
  if (call_.size() == 1) Agree(outbox);
}

int Operation::IndexOf(uint32_t rank) const {
  const auto found = std::lower_bound(call_.set.begin(), call_.set.end(),
                                      static_cast<int32_t>(rank));
  if (found == call_.set.end() || *found != static_cast<int32_t>(rank)) {
    return -1;
  }
  return static_cast<int>(found - call_.set.begin());
}

absl::Status Operation::OnCall(Outbox& outbox, CollectiveMessage message,
                               Time now) {
  const CollectiveHeader& header = message.header;
  const int index = IndexOf(header.sender());
  if (index < 0 || callers_[index].called) {
    return absl::InvalidArgumentError(absl::StrCat(
        Describe(call_), ": rank ", header.sender(),
        index < 0 ? " is not of its set" : " calls it a second time"));
  }
  Caller& caller = callers_[index];
  caller.called = true;
  ++num_called_;
  for (const Sending& sending : sending_) {
    if (sending.eager && sending.flow.to == index) {
      outbox.AddEager(static_cast<int>(header.sender()), -sending.flow.size);
    }
  }
  const std::string difference =
      Difference(call_.name, call_.what, call_.set[call_.index], header.call(),
                 static_cast<int>(header.sender()));
  if (!difference.empty()) {
    if (!mismatch_.empty()) return absl::OkStatus();
    mismatch_ = difference;
    // The first of the set need not wait for its own verdict.
    mismatch_since_ = call_.index == 0 ? Time::InfinitePast() : now;
    return absl::OkStatus();
  }
  const int64_t due = BytesFrom(call_, index);
  if (due >= 0 && header.bytes() != due) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(call_), ": rank ", header.sender(), " brings ",
                     header.bytes(), " bytes where ", due, " are due"));
  }
  caller.bytes = header.bytes();
  caller.eager = std::move(message.payload);
  if (num_called_ == call_.size() && mismatch_.empty()) Agree(outbox);
  return absl::OkStatus();
}

void Operation::Agree(Outbox& outbox) {
  std::vector<int64_t> bytes;
  for (const Caller& caller : callers_) bytes.push_back(caller.bytes);
  auto inflows = PlanInflows(call_, bytes, gathered_);
  if (!inflows.ok()) {
    failure_ = inflows.status();
    return;
  }
  agreed_ = true;
  for (const Inflow& flow : *inflows) receiving_.emplace_back().flow = flow;
  for (Receiving& from : receiving_) {
    if (from.flow.round != 0) continue;
    Frame& eager = callers_[from.flow.from].eager;
    from.eager = eager.size() > 0;
    if (from.eager) Take(outbox, from, std::move(eager));
  }
  SumHeld(outbox);  // of a set of one
  for (CollectiveMessage& chunk : std::exchange(early_chunks_, {})) {
    if (absl::Status s = OnChunk(outbox, std::move(chunk)); !s.ok())
      failure_ = s;
  }
}

absl::Status Operation::OnChunk(Outbox& outbox, CollectiveMessage message) {
  const CollectiveHeader& header = message.header;
  const int index = IndexOf(header.sender());
  if (index < 0 || !callers_[index].called || !mismatch_.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(Describe(call_), ": a chunk of rank ", header.sender(),
                     " before all had agreed"));
  }
  if (!agreed_) {  // the sender knows of everybody's call already
    if (static_cast<int64_t>(early_chunks_.size()) >=
        call_.size() * kNumRounds * (kSharedFlowWindow / kChunkBytes)) {
      return absl::InvalidArgumentError(absl::StrCat(
          Describe(call_), ": more chunks than the window of a flow has"));
    }
    early_chunks_.push_back(std::move(message));
    return absl::OkStatus();
  }
  for (Receiving& from : receiving_) {
    if (from.flow.from != index || from.flow.round != header.round()) continue;
    const int64_t size = static_cast<int64_t>(message.payload.size());
    const int64_t left = from.flow.size - from.come;
    const bool whole = size == left || (size < left && size % kChunkBytes == 0);
    if (header.offset() != from.come || !whole) break;
    Take(outbox, from, std::move(message.payload));
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(Describe(call_), ": rank ", header.sender(), " sends ",
                   message.payload.size(), " bytes of round ", header.round(),
                   " from ", header.offset(), " on, which are not due"));
}

void Operation::Take(Outbox& outbox, Receiving& from, Frame payload) {
  const int64_t size = static_cast<int64_t>(payload.size());
  char* const place = from.flow.place;
  from.come += size;
  if (place == nullptr) {
    from.held.push_back(std::move(payload));
    return SumHeld(outbox);
  }
  std::memcpy(place + from.taken, payload.data(), payload.size());
  from.taken += size;
  if (from.flow.forwards) MakeAvailable(size);
  Acknowledge(outbox, from);
}

void Operation::SumHeld(Outbox& outbox) {
  const int64_t unit = SizeOf(static_cast<DType>(call_.what.dtype()));
  // Where everybody sums everything, the sum may replace what has yet to go.
  if (sum_.range.size() == call_.what.count() && !not_needed()) return;
  while (summed_ < sum_.range.size()) {
    int64_t size = (sum_.range.size() - summed_) * unit;
    std::vector<const void*> operands(callers_.size());
    operands[call_.index] = sum_.operand + summed_ * unit;
    for (Receiving& from : receiving_) {
      if (from.flow.place != nullptr) continue;
      if (from.held.empty()) return;
      const absl::string_view first = from.held.front().view();
      operands[from.flow.from] = first.data() + from.summed;
      size = std::min(size, static_cast<int64_t>(first.size()) - from.summed);
    }
    const int64_t begin = sum_.range.begin + summed_;
    SumRange({begin, begin + size / unit}, operands);
    summed_ += size / unit;
    for (Receiving& from : receiving_) {
      if (from.flow.place != nullptr) continue;
      from.taken += size;
      from.summed += size;
      if (from.summed < static_cast<int64_t>(from.held.front().size()))
        continue;
      from.held.erase(from.held.begin());
      from.summed = 0;
      Acknowledge(outbox, from);
    }
    MakeAvailable(size);
  }
}

// `operands` hold `range`, by rank of the set; the sum of slice c begins with
// that of rank c + 1.
void Operation::SumRange(Range range, absl::Span<const void* const> operands) {
  const int n = call_.size();
  const int64_t unit = SizeOf(static_cast<DType>(call_.what.dtype()));
  char* const out = sum_.out + (range.begin - sum_.range.begin) * unit;
  std::vector<const void*> in_order(operands.size());
  for (int c = 0; c < n; ++c) {
    const Range part = Intersect(sum_.slices[c], range);
    if (part.empty()) continue;
    const int64_t offset = (part.begin - range.begin) * unit;
    for (int i = 0; i < n; ++i) {
      in_order[i] =
          static_cast<const char*>(operands[(c + 1 + i) % n]) + offset;
    }
    Reduce(call_.arithmetic(), in_order, part.size(), out + offset);
  }
}

void Operation::MakeAvailable(int64_t bytes) {
  for (Sending& sending : sending_) {
    if (sending.flow.round == 1) sending.flow.available += bytes;
  }
}

void Operation::Acknowledge(Outbox& outbox, const Receiving& from) {
  if (from.eager) return;
  SendAck(outbox, call_.set[from.flow.from], from.flow.round, from.taken);
}

void Operation::SendAck(Outbox& outbox, int rank, uint32_t round,
                        int64_t offset) {
  CollectiveHeader header;
  header.set_kind(CollectiveHeader::ACK);
  *header.mutable_key() = ProtoOf(key_);
  header.set_round(round);
  header.set_offset(offset);
  outbox.Send(rank, std::move(header));
}

absl::Status Operation::OnAck(Outbox& outbox, const CollectiveHeader& header) {
  const int index = IndexOf(header.sender());
  for (Sending& sending : sending_) {
    if (sending.flow.to != index || sending.flow.round != header.round()) {
      continue;
    }
    if (header.offset() <= sending.acked || header.offset() > sending.sent) {
      break;
    }
    outbox.AddChunks(call_.set[index], sending.acked - header.offset());
    sending.acked = header.offset();
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      Describe(call_), ": rank ", header.sender(), " acknowledges ",
      header.offset(), " bytes of round ", header.round(), ", in vain"));
}

int64_t Operation::MaySend(const Outbox& outbox, const Sending& sending) const {
  const Outflow& flow = sending.flow;
  const int64_t on_the_way = sending.sent - sending.acked;
  int64_t room = outbox.RoomForChunks(call_.set[flow.to], on_the_way);
  if (on_the_way == 0) room = std::max(room, kChunkBytes);
  const int64_t bytes = std::max<int64_t>(
      0, std::min({flow.available - sending.sent, room, kSharedChunkBytes}));
  const bool last = sending.sent + bytes == flow.size;
  return last ? bytes : bytes - bytes % kChunkBytes;
}

bool Operation::SendSome(Outbox& outbox) {
  if (!agreed_) return false;
  bool any = false;
  for (Sending& sending : sending_) {
    const Outflow& flow = sending.flow;
    const int rank = call_.set[flow.to];
    const int64_t most = MaySend(outbox, sending);
    if (most == 0) continue;
    CollectiveHeader header;
    header.set_kind(CollectiveHeader::CHUNK);
    *header.mutable_key() = ProtoOf(key_);
    header.set_round(flow.round);
    header.set_offset(sending.sent);
    // A copy: what has been queued cannot be called back when the operation
    // fails, and the caller's memory is gone then.
    const Outbox::SentChunk chunk =
        outbox.SendChunk(rank, std::move(header),
                         {flow.data + sending.sent, static_cast<size_t>(most)});
    outbox.AddChunks(rank, chunk.bytes);
    sending.sent += chunk.bytes;
    if (!chunk.shared) sending.to_be_acked = sending.sent;
    any = true;
  }
  if (any) SumHeld(outbox);
  return any;
}

void Operation::LetGo(Outbox& outbox) {
  for (Receiving& from : receiving_) {
    if (from.come > std::exchange(from.taken, from.come)) {
      Acknowledge(outbox, from);
    }
  }
  for (const CollectiveMessage& chunk : early_chunks_) {
    const CollectiveHeader& header = chunk.header;
    SendAck(outbox, static_cast<int>(header.sender()), header.round(),
            header.offset() + static_cast<int64_t>(chunk.payload.size()));
  }
}

void Operation::Abandon(Outbox& outbox) {
  for (const Sending& sending : sending_) {
    const int rank = call_.set[sending.flow.to];
    outbox.AddChunks(rank, sending.acked - sending.sent);
    if (sending.eager && !callers_[sending.flow.to].called) {
      outbox.AddEager(rank, -sending.flow.size);
    }
  }
}

bool Operation::complete() const {
  return agreed_ && summed_ == sum_.range.size() &&
         std::all_of(receiving_.begin(), receiving_.end(),
                     [](const Receiving& from) {
                       return from.taken == from.flow.size;
                     }) &&
         std::all_of(sending_.begin(), sending_.end(),
                     [](const Sending& to) { return to.done(); });
}

bool Operation::not_needed() const {
  return std::all_of(sending_.begin(), sending_.end(),
                     [](const Sending& to) { return to.sent == to.flow.size; });
}

absl::Status Operation::Failure(Time now) const {
  if (!failure_.ok()) return failure_;
  if (mismatch_.empty() || now - mismatch_since_ < kVerdictDelay) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(mismatch_);
}

bool Operation::Misses(int rank) const {
  const int index = IndexOf(static_cast<uint32_t>(rank));
  return index >= 0 && !callers_[index].called;
}

std::vector<int32_t> Operation::Awaited() const {
  std::vector<bool> awaited(callers_.size());
  for (size_t i = 0; i < callers_.size(); ++i) awaited[i] = !callers_[i].called;
  for (const Receiving& from : receiving_) {
    if (from.come < from.flow.size) awaited[from.flow.from] = true;
  }
  for (const Sending& to : sending_) {
    if (agreed_ && to.acked < to.sent && !to.done()) awaited[to.flow.to] = true;
  }
  std::vector<int32_t> ranks;
  for (size_t i = 0; i < awaited.size(); ++i) {
    if (awaited[i]) ranks.push_back(call_.set[i]);
  }
  return ranks;
}

}  // namespace psring
