#include "collectives/mesh.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/printable.h"

namespace psring {
namespace {

// After a call the thread looks at the time for so long, even if nothing is
// under way: others may begin something without waking it.
constexpr absl::Duration kUsedFor = absl::Seconds(10);
// Long before kUnreachableAfter, which a sender counts from on where it has no
// connection and what it has sent is not acknowledged.
constexpr absl::Duration kAcknowledgeAfter = absl::Seconds(1);
// At the end, for those who read slowly what this rank has said; as
// CollectiveSocketOptions' linger.
constexpr absl::Duration kLastPatience = absl::Seconds(2);
// So that calls and chunks get their turn between others' messages.
constexpr int kMaxMessagesAtOnce = 64;

}  // namespace

absl::StatusOr<std::string> Mesh::Bind(const std::string& address) {
  auto socket = Socket::Bind(context_, address, 0, CollectiveSocketOptions());
  if (!socket.ok()) return socket.status();
  inbox_ = *std::move(socket);
  filter_.emplace(inbox_->endpoint());
  return inbox_->endpoint();
}

bool Mesh::Turn(Hear hear) {
  Tickets::Work work = tickets_.Take();
  const Time now = Now();
  if (work.job.has_value()) Connect(*std::move(work.job));
  if (broken_.ok() && !cancellation_.status().ok()) {
    FailAll(cancellation_.status(), Tell::kNobody);
  }
  if (!work.posted.empty()) last_posted_ = now;
  for (Tickets::Posted& posted : work.posted) Begin(std::move(posted), now);
  for (const int64_t handle : work.given_up) GiveUp(handle);
  if (work.stop || !links_.has_value()) return !work.stop;
  if (broken_.ok()) {
    if (hear == Hear::kSockets) Receive(now);
    ReceiveLetters(now);
    SendChunks(now);
    if (now >= next_tick_) {
      next_tick_ = now + kTick;
      OnTick(now);
    }
    if (!links_->status().ok()) FailAll(links_->status(), Tell::kNobody);
  }
  return true;
}

void Mesh::End() {
  FailAll(absl::CancelledError(
              absl::StrCat("rank ", job_.rank, " has ended its collectives")),
          Tell::kSet);
  if (options_.ranks_left) left_ = options_.ranks_left();
  if (links_.has_value()) links_->Finish(left_, Now() + kLastPatience);
  inbox_->Acknowledge();
}

Mesh::Sleep Mesh::PrepareToSleep() {
  const Time now = Now();
  const bool live = links_.has_value() && broken_.ok();
  // What is broken stays so: neither its sockets nor its reason are news.
  Sleep sleep{.sockets = {}, .fds = {tickets_.fd()}, .until = now};
  if (broken_.ok()) sleep.fds.push_back(cancellation_.fd());
  if (live) sleep.sockets = links_->sockets();
  const int doorbell = links_.has_value() ? links_->doorbell_fd() : -1;
  if (doorbell >= 0) sleep.fds.push_back(doorbell);
  if (!is_idle()) last_busy_ = now;
  // Not after each operation: that would be a message more for each.
  if (live && is_idle() && unacknowledged_ &&
      now >= last_busy_ + kAcknowledgeAfter) {
    inbox_->Acknowledge();
    unacknowledged_ = false;
  }
  Time until = now + absl::Hours(1);
  if (live && now < last_posted_ + kUsedFor) until = now + kTick;
  if (live && !is_idle()) until = next_tick_;
  if (live && is_idle() && unacknowledged_) {
    until = std::min(until, last_busy_ + kAcknowledgeAfter);
  }
  if (links_.has_value()) {
    // So that others, which may not be broken, have room.
    for (int i = 0; !broken_.ok() && i < kMaxMessagesAtOnce; ++i) {
      if (!links_->NextLetter().has_value()) break;
    }
    if (!links_->PrepareToSleep()) return sleep;
  }
  sleep.until = until;
  return sleep;
}

void Mesh::OnWoken(const absl::Status& waited) {
  if (!waited.ok() && broken_.ok()) FailAll(waited, Tell::kNobody);
  if (!links_.has_value()) return;
  links_->Wake();
  if (broken_.ok()) links_->Tend(left_);
}

bool Mesh::NeedsNoSockets() const {
  return links_.has_value() && broken_.ok() && links_->all_by_mailbox();
}

bool Mesh::HasNews() const {
  return tickets_.HasWork() || links_->HasLetters();
}

// What else comes is seen to at the next tick.
int Mesh::NumAwaited(int64_t handle) const {
  const auto found = by_handle_.find(handle);
  if (found == by_handle_.end() || operations_.size() > 1) return 1;
  const Operation& operation = *found->second;
  if (operation.agreed()) return 1;
  return std::max<int>(1, static_cast<int>(operation.Awaited().size()));
}

void Mesh::AwaitNews(int64_t handle, Time deadline) {
  if (!links_->PrepareToSleep(NumAwaited(handle))) return;
  const int fds[] = {tickets_.fd(), cancellation_.fd(), links_->doorbell_fd()};
  const absl::Status waited =
      Wait(absl::Span<Socket* const>(), fds, std::min(deadline, next_tick_));
  if (!waited.ok()) FailAll(waited, Tell::kNobody);
  links_->Wake();
}

void Mesh::StayAwake() { links_->StayAwake(); }

bool Mesh::LetNewsWake() { return links_->PrepareToSleep(); }

void Mesh::Connect(CollectiveJob job) {
  job_ = std::move(job);
  links_.emplace(context_, job_, *inbox_, options_.shares_memory);
  join_.emplace(job_.size());
  std::vector<int32_t> all(job_.endpoints.size());
  for (int rank = 0; rank < job_.size(); ++rank) all[rank] = rank;
  everybody_ = DigestOf(all);
}

Operation* Mesh::Find(const CallKey& key) {
  const auto found = operations_.find(key);
  return found == operations_.end() ? nullptr : found->second.get();
}

// ---- What callers want ----

void Mesh::Begin(Tickets::Posted posted, Time now) {
  if (!broken_.ok()) return tickets_.Finish(posted.handle, broken_, {});
  if (join_handle_ != 0) {
    return tickets_.Finish(
        posted.handle,
        absl::InvalidArgumentError(
            "this rank has said that it has no more data: it takes part in "
            "nothing of its own until all ranks have"),
        {});
  }
  if (!posted.call.has_value()) {
    join_handle_ = posted.handle;
    join_deadline_ = now + step_timeout_;
    const bool again =
        ended_uncalled_.has_value() || join_->HasJoined(job_.rank);
    return again ? JoinAgain(now) : MaybeJoin(now);
  }
  gave_up_join_ = false;
  ended_uncalled_.reset();
  CallKey key{DigestOf(posted.call->set), posted.call->name, 0,
              static_cast<uint32_t>(posted.call->size())};
  key.occurrence = early_.NextOccurrence(key);
  Start(std::make_unique<Operation>(std::move(key), *std::move(posted.call),
                                    posted.handle, now + step_timeout_),
        now);
}

void Mesh::Start(std::unique_ptr<Operation> owned, Time now) {
  Operation& operation = *owned;
  const CallKey& key = operation.key();
  early_.Called(key);
  operations_[key] = std::move(owned);
  if (operation.handle() != 0) by_handle_[operation.handle()] = &operation;
  EarlyCalls::Operation early = early_.Take(key);
  if (!early.failure.ok()) {
    return Fail(operation, std::move(early.failure), Tell::kNobody);
  }
  operation.Start(*links_, join_->round());
  for (CollectiveMessage& call : early.calls) {
    const std::string peer = call.peer;
    const int rank = static_cast<int>(call.header.sender());
    const absl::Status status = operation.OnCall(*links_, std::move(call), now);
    if (!status.ok()) Drop(peer, status, rank);
  }
  Settle(operation, now);
}

void Mesh::GiveUp(int64_t handle) {
  if (handle == join_handle_) {
    return EndJoin(absl::CancelledError("given up"), 0);
  }
  const auto found = by_handle_.find(handle);
  if (found == by_handle_.end()) return;  // it has been done meanwhile
  Operation& operation = *found->second;
  const bool needed = !operation.not_needed();
  if (!needed) operation.LetGo(*links_);
  Fail(operation,
       absl::AbortedError(absl::StrCat(Describe(operation.call()), ": rank ",
                                       job_.rank, " has given it up")),
       needed ? Tell::kSet : Tell::kNobody);
}

// ---- What others say ----

void Mesh::Receive(Time now) {
  for (int i = 0; i < kMaxMessagesAtOnce && broken_.ok(); ++i) {
    auto frames = inbox_->TryReceive();
    if (!frames.ok()) return FailAll(frames.status(), Tell::kNobody);
    if (!frames->has_value()) break;
    unacknowledged_ = true;
    last_busy_ = now;
    const int rank = ProvenRank(**frames);
    OnFrames(**std::move(frames), rank, now);
  }
}

void Mesh::ReceiveLetters(Time now) {
  for (int i = 0; i < kMaxMessagesAtOnce && broken_.ok(); ++i) {
    auto letter = links_->NextLetter();
    if (!letter.has_value()) return;
    if (letter->frames.ok()) {
      OnFrames(*std::move(letter->frames), letter->rank, now);
    } else {
      Drop("mailbox", letter->frames.status(), letter->rank);
    }
  }
}

void Mesh::OnFrames(Frames frames, int proven_rank, Time now) {
  const std::string peer(frames[0].view());
  if (!filter_->Hears(peer)) return;
  const Addressee here{job_.epoch, job_.rank, job_.size()};
  auto message = ParseCollective(std::move(frames), here, proven_rank);
  const absl::Status status =
      message.ok() ? OnMessage(*std::move(message), now) : message.status();
  if (!status.ok()) Drop(peer, status, proven_rank);
}

void Mesh::Drop(const std::string& peer, const absl::Status& why, int rank) {
  filter_->Drop(peer, why, rank);
  malformed_ = filter_->malformed();
}

absl::Status Mesh::OnMessage(CollectiveMessage message, Time now) {
  const Header& header = message.header;
  if (header.slot_number() > 0) {
    if (absl::Status s = links_->TakeShared(message); !s.ok()) return s;
  }
  switch (header.kind()) {
    case Header::CALL:
      return OnCall(std::move(message), now);
    case Header::CHUNK:
      return OnChunk(std::move(message));
    case Header::ACK: {
      Operation* const operation = Find(KeyOf(header.key()));
      if (operation == nullptr) return absl::OkStatus();  // it has ended
      const absl::Status status = operation->OnAck(*links_, header);
      if (status.ok()) operation->MoveDeadline(now + step_timeout_);
      Settle(*operation, now);
      return status;
    }
    case Header::FAIL:
      return OnFailure(std::move(message), now);
    case Header::QUESTION:
      OnQuestion(header, now);
      return absl::OkStatus();
    case Header::ANSWER:
      OnAnswer(header, now);
      return absl::OkStatus();
    case Header::JOINED:
      return OnJoined(header);
    case Header::EVERYBODY_JOINED:
      return OnEverybodyJoined(header);
    case Header::OFFER:
      links_->OnOffer(header);
      return absl::OkStatus();
    case Header::ACCEPT:
      links_->OnAccept(static_cast<int>(header.sender()));
      return absl::OkStatus();
    case Header::MAILBOX:
      // Not twice: then sockets may be waited on elsewhere (NeedsNoSockets).
      if (absl::Status s = links_->OnMailbox(static_cast<int>(header.sender()));
          !s.ok()) {
        return s;
      }
      inbox_->Acknowledge();  // its last message there
      return absl::OkStatus();
    default:
      return absl::InternalError("a kind that was not checked");
  }
}

absl::Status Mesh::OnCall(CollectiveMessage message, Time now) {
  const CallKey key = KeyOf(message.header.key());
  if (Operation* const operation = Find(key); operation != nullptr) {
    const absl::Status status =
        operation->OnCall(*links_, std::move(message), now);
    if (status.ok() && operation->agreed()) {
      operation->MoveDeadline(now + step_timeout_);
    }
    Settle(*operation, now);
    return status;
  }
  if (IsPast(key)) return absl::OkStatus();
  if (absl::Status s = early_.Add(std::move(message)); !s.ok()) return s;
  TakeTurns(key, now);
  return absl::OkStatus();
}

absl::Status Mesh::OnChunk(CollectiveMessage message) {
  const Header& header = message.header;
  const CallKey key = KeyOf(header.key());
  Operation* const operation = Find(key);
  if (operation != nullptr) {
    const Time now = Now();
    const absl::Status status = operation->OnChunk(*links_, std::move(message));
    if (status.ok() && operation->agreed()) {
      operation->MoveDeadline(now + step_timeout_);
    }
    Settle(*operation, now);
    return status;
  }
  if (!IsPast(key)) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", header.sender(), " sends a chunk of '", key.name,
                     "', which nobody has called here"));
  }
  // This rank has given it up; its sender need not.
  Header ack;
  ack.set_kind(Header::ACK);
  *ack.mutable_key() = header.key();
  ack.set_round(header.round());
  ack.set_offset(header.offset() +
                 static_cast<int64_t>(message.payload.size()));
  links_->Send(static_cast<int>(header.sender()), std::move(ack));
  return absl::OkStatus();
}

absl::Status Mesh::OnFailure(CollectiveMessage message, Time now) {
  const Header& header = message.header;
  const CallKey key = KeyOf(header.key());
  if (Operation* const operation = Find(key); operation != nullptr) {
    Fail(*operation, FailureIn(header),
         header.spread() ? Tell::kSet : Tell::kNobody);
    return absl::OkStatus();
  }
  if (IsPast(key)) return absl::OkStatus();
  if (absl::Status s = early_.Add(std::move(message)); !s.ok()) return s;
  TakeTurns(key, now);
  return absl::OkStatus();
}

void Mesh::SendChunks(Time now) {
  bool any = true;
  for (int turn = 0; any && turn < kMaxMessagesAtOnce; ++turn) {
    any = false;
    for (Operation* const operation : sending_) {
      any |= operation->SendSome(*links_);
    }
  }
  for (Operation* const operation :
       std::vector<Operation*>(sending_.begin(), sending_.end())) {
    // It may have ended with one before it.
    if (!sending_.contains(operation) || !operation->not_needed()) continue;
    sending_.erase(operation);
    Settle(*operation, now);
  }
}

// ---- Ends ----

void Mesh::Settle(Operation& operation, Time now) {
  if (absl::Status why = operation.Failure(now); !why.ok()) {
    Fail(operation, std::move(why), Tell::kSet);
  } else if (operation.complete()) {
    Finish(operation, absl::OkStatus());
    MaybeJoin(now);
  } else if (operation.agreed() && !operation.not_needed()) {
    sending_.insert(&operation);
  }
}

void Mesh::Fail(Operation& operation, absl::Status why, Tell whom) {
  for (const int32_t rank : operation.call().set) {
    if (whom == Tell::kSet && rank != job_.rank) {
      SendFailure(rank, operation.key(), why, /*spread=*/false);
    }
  }
  Finish(operation, std::move(why));
  MaybeJoin(Now());
}

void Mesh::FailAll(absl::Status why, Tell whom) {
  broken_ = why;
  while (!operations_.empty()) Fail(*operations_.begin()->second, why, whom);
  if (join_handle_ != 0) EndJoin(why, 0);
}

void Mesh::Finish(Operation& operation, absl::Status status) {
  operation.Abandon(*links_);
  const int64_t handle = operation.handle();
  const CallKey key = operation.key();
  Gathered gathered = operation.TakeGathered();
  by_handle_.erase(handle);
  sending_.erase(&operation);
  stalls_.Forget(key);
  operations_.erase(key);
  if (handle != 0) {
    tickets_.Finish(handle, std::move(status), std::move(gathered));
  }
}

void Mesh::SendFailure(int rank, const CallKey& key, const absl::Status& why,
                       bool spread) {
  Header failure;
  failure.set_kind(Header::FAIL);
  *failure.mutable_key() = ProtoOf(key);
  failure.set_code(static_cast<uint32_t>(why.code()));
  failure.set_text(std::string(WholeCharacters(why.message(), kMaxTextBytes)));
  failure.set_spread(spread);
  links_->Send(rank, std::move(failure));
}

}  // namespace psring
