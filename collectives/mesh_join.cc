// What a Mesh does about ranks without data: this one, which takes part in what
// others call, and the others.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "collectives/mesh.h"
#include "common/clock.h"

namespace psring {
namespace {

// Null: there is no memory.
Operation::Scratch Zeros(int64_t bytes) {
  void* const zeros =
      std::calloc(static_cast<size_t>(std::max<int64_t>(bytes, 1)), 1);
  return {static_cast<char*>(zeros), std::free};
}

}  // namespace

void Mesh::MaybeJoin(Time now) {
  if (!broken_.ok() || join_handle_ == 0) return;
  if (join_->HasJoined(job_.rank)) return;
  if (!operations_.empty()) return;  // the last of them calls this again
  join_deadline_ = now + step_timeout_;
  Header joined;
  joined.set_kind(Header::JOINED);
  joined.set_join_round(join_->round());
  for (int rank = 0; rank < job_.size(); ++rank) {
    if (rank != job_.rank) links_->Send(rank, joined);
  }
  Header own = joined;
  own.set_sender(static_cast<uint32_t>(job_.rank));
  OnJoined(own).IgnoreError();
  TakeAllTurns(now);
}

// A caller that has given up takes nothing back: the others count on this rank.
// One that tries again finds the round under way, or at its end.
void Mesh::JoinAgain(Time now) {
  if (!ended_uncalled_.has_value()) return TakeAllTurns(now);
  EndJoin(absl::OkStatus(), *std::exchange(ended_uncalled_, std::nullopt));
}

absl::Status Mesh::OnJoined(const Header& header) {
  const uint64_t round = header.join_round();
  // Rank 0 has heard it first, and said that everybody has joined.
  if (round + 1 == join_->round()) return absl::OkStatus();
  if (round != join_->round() && round != join_->round() + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", header.sender(), " joins round ", round,
                     ", but this is round ", join_->round()));
  }
  const int last = static_cast<int>(header.sender());
  if (!join_->OnJoined(last, round) || job_.rank != 0) return absl::OkStatus();
  Header everybody;
  everybody.set_kind(Header::EVERYBODY_JOINED);
  everybody.set_join_round(round);
  everybody.set_last(last);
  for (int rank = 1; rank < job_.size(); ++rank) links_->Send(rank, everybody);
  EndRound(last);
  return absl::OkStatus();
}

absl::Status Mesh::OnEverybodyJoined(const Header& header) {
  if (header.join_round() != join_->round() || !join_->HasJoined(job_.rank)) {
    return absl::InvalidArgumentError(
        "everybody has joined, but not this rank");
  }
  EndRound(header.last());
  return absl::OkStatus();
}

void Mesh::EndRound(int last) {
  join_->EndRound();
  if (join_handle_ != 0) return EndJoin(absl::OkStatus(), last);
  if (gave_up_join_) ended_uncalled_ = last;
}

void Mesh::EndJoin(absl::Status status, int last) {
  const int64_t handle = std::exchange(join_handle_, 0);
  gave_up_join_ = !status.ok();
  Gathered result;
  result.sizes = {sizeof(int32_t)};
  result.bytes = std::make_unique<char[]>(sizeof(int32_t));
  const int32_t rank = last;
  std::memcpy(result.bytes.get(), &rank, sizeof(rank));
  tickets_.Finish(handle, std::move(status), std::move(result));
}

void Mesh::TakeAllTurns(Time now) {
  for (const CallKey& key : early_.Keys()) TakeTurns(key, now);
}

// Another rank may call a name again before this one has heard of what has
// failed under it: a third one's message is on its way. That call has to wait.
void Mesh::TakeTurns(CallKey key, Time now) {
  while (join_handle_ != 0 && join_->HasJoined(job_.rank)) {
    key.occurrence = early_.NextOccurrence(key);
    const EarlyCalls::Operation* const next = early_.Find(key);
    if (next == nullptr) return;
    if (!next->failure.ok()) {
      early_.Called(key);
      early_.Take(key);
      continue;
    }
    const auto first = std::find_if(
        next->calls.begin(), next->calls.end(), [&](const auto& call) {
          return call.header.join_round() == join_->round();
        });
    if (first == next->calls.end()) return;
    const Header header = first->header;
    TakePartIn(header, now);
  }
}

void Mesh::TakePartIn(const Header& first, Time now) {
  const CallKey key = KeyOf(first.key());
  Call call;
  call.name = key.name;
  call.what = first.call();
  const auto operation = call.what.operation();
  const bool sums = operation == proto::CollectiveCall::ALLREDUCE ||
                    operation == proto::CollectiveCall::REDUCESCATTER;
  const Reduction reduction = static_cast<Reduction>(call.what.reduction());
  const bool zeros_are_neutral = operation == proto::CollectiveCall::BARRIER ||
                                 (sums && (reduction == Reduction::kSum ||
                                           reduction == Reduction::kAverage));
  Operation::Scratch memory(nullptr, std::free);
  absl::Status why;
  if (key.set_digest == everybody_ && zeros_are_neutral &&
      key.set_size == static_cast<uint32_t>(job_.size())) {
    for (int rank = 0; rank < job_.size(); ++rank) call.set.push_back(rank);
    call.index = job_.rank;
    const int64_t unit = sums ? SizeOf(call.arithmetic().dtype) : 0;
    // An allreduce writes its sums over zeros that have been sent; a
    // reducescatter needs a place of its own for them.
    const int64_t zeros = call.what.count() * unit;
    int64_t sum = 0;
    if (operation == proto::CollectiveCall::REDUCESCATTER) {
      sum = SlicesOf(call.what, call.size())[call.index].size() * unit;
    }
    memory = Zeros(zeros + sum);
    call.in = memory.get();
    call.out = memory.get() + (sum > 0 ? zeros : 0);
    if (memory == nullptr) {
      why = absl::ResourceExhaustedError(
          absl::StrCat(Describe(operation, key.name), ": rank ", job_.rank,
                       " has joined, and has no memory for the ", zeros + sum,
                       " bytes of zeros with which it takes part"));
    }
  } else {
    why = absl::FailedPreconditionError(absl::StrCat(
        Describe(operation, key.name), ": rank ", job_.rank,
        " has joined: it has no more data, and takes part only in barriers, "
        "sums and averages over all ranks"));
  }
  if (!why.ok()) {
    early_.Called(key);
    early_.Take(key);
    return SendFailure(static_cast<int>(first.sender()), key, why,
                       /*spread=*/true);
  }
  join_deadline_ = now + step_timeout_;
  Start(std::make_unique<Operation>(key, std::move(call), 0,
                                    now + step_timeout_, std::move(memory)),
        now);
}

}  // namespace psring
