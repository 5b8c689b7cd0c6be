// What a Mesh does as time passes, and about ranks that wait for each other.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "collectives/mesh.h"
#include "common/clock.h"
#include "common/counted.h"
#include "common/log.h"

namespace psring {
namespace {

std::string Waits(int rank, const std::string& operation) {
  return absl::StrCat("rank ", rank, " waits for ", operation);
}

// A step as the stall check knows it: there are no such calls, as they have no
// ranks.
CallKey KeyOf(const proto::CollectiveStep& step) {
  return {.set_digest = 0,
          .name = step.model(),
          .occurrence = static_cast<uint64_t>(step.step()),
          .set_size = 0};
}

// Whether other ranks may be waiting for what this rank calls only afterwards.
bool MayStall(const Tickets::Awaited& mine) {
  return (mine.order.empty() ? mine.by_main : mine.by_any) >= kAskAfter;
}

// Whether this rank calls what is asked after only once it has what it awaits
// here, and the asking rank the other way round.
bool ComesLater(const proto::CollectiveHeader& question,
                const Tickets::Awaited& here) {
  if (question.main_waits() && here.by_main >= kSayAfter) return true;
  return !here.order.empty() && here.order == question.order() &&
         here.by_any >= kSayAfter;
}

}  // namespace

int Mesh::LeftWithoutCalling(const Operation& operation,
                             const std::vector<int>& left) const {
  for (const int32_t rank : operation.Awaited()) {
    if (std::find(left.begin(), left.end(), rank) != left.end() &&
        operation.Misses(rank)) {
      return rank;
    }
  }
  return -1;
}

void Mesh::OnTick(Time now) {
  const std::vector<int> left = std::exchange(
      left_, options_.ranks_left ? options_.ranks_left() : std::vector<int>());
  std::vector<CallKey> keys;
  for (const auto& [key, operation] : operations_) keys.push_back(key);
  for (const CallKey& key : keys) {
    Operation* const operation = Find(key);
    if (operation == nullptr) continue;
    if (now >= operation->deadline()) {
      Fail(*operation, TooLate(*operation), Tell::kSet);
      continue;
    }
    if (const int rank = LeftWithoutCalling(*operation, left); rank >= 0) {
      Fail(*operation,
           absl::FailedPreconditionError(absl::StrCat(
               job_.descriptions[rank], " has left the job, but ",
               Describe(operation->call()), " needs it on every rank")),
           Tell::kSet);
      continue;
    }
    TellOfLongWait(*operation, now);
    AskAboutStalls(*operation, now);
    Settle(*operation, now);
  }
  // A rank that takes part in a model's steps meanwhile does not wait for it.
  if (join_handle_ == 0 || now < join_deadline_ ||
      tickets_.AwaitedFor(join_handle_, now).by_any < step_timeout_) {
    return;
  }
  std::vector<std::string> missing;
  for (const int32_t rank : join_->Missing()) {
    if (rank != job_.rank) missing.push_back(job_.descriptions[rank]);
  }
  EndJoin(
      absl::DeadlineExceededError(absl::StrCat(
          "no more data here, but for ", absl::FormatDuration(step_timeout_),
          " nothing from ", ShortList(missing))),
      0);
}

std::string Mesh::WhoIsAwaited(const Operation& operation) const {
  std::vector<std::string> who;
  for (const int32_t rank : operation.Awaited()) {
    who.push_back(job_.descriptions[rank]);
  }
  return ShortList(who);
}

void Mesh::TellOfLongWait(Operation& operation, Time now) {
  if (operation.handle() == 0) return;
  const absl::Duration waited =
      tickets_.AwaitedFor(operation.handle(), now).by_any;
  if (waited < std::max(options_.long_wait, 2 * operation.told_wait())) return;
  const std::string names = WhoIsAwaited(operation);
  if (names.empty()) return;
  operation.TellWait(waited);
  LogWarning("has waited for $0 s at $1 for $2", absl::ToInt64Seconds(waited),
             Describe(operation.call()), names);
}

absl::Status Mesh::TooLate(const Operation& operation) const {
  const std::string awaited = WhoIsAwaited(operation);
  const std::string names = awaited.empty() ? "this rank itself" : awaited;
  const std::string after = absl::FormatDuration(step_timeout_);
  return absl::DeadlineExceededError(
      operation.agreed()
          ? absl::StrCat(Describe(operation.call()), ": for ", after,
                         " no bytes have come from ", names,
                         ", or arrived there")
          : absl::StrCat(Describe(operation.call()), ": not called within ",
                         after, " by ", names));
}

// ---- Ranks that wait for each other ----

void Mesh::AskAboutStalls(Operation& operation, Time now) {
  if (operation.agreed() || operation.handle() == 0) return;
  const Tickets::Awaited mine = tickets_.AwaitedFor(operation.handle(), now);
  if (!MayStall(mine)) return;
  for (const int32_t rank : operation.Awaited()) {
    if (!stalls_.Ask(operation.key(), rank, now)) continue;
    Header question;
    question.set_kind(Header::QUESTION);
    *question.mutable_key() = ProtoOf(operation.key());
    question.set_main_waits(mine.by_main >= kAskAfter);
    question.set_order(mine.order);
    links_->Send(rank, std::move(question));
  }
}

void Mesh::OnQuestion(const Header& question, Time now) {
  const int asker = static_cast<int>(question.sender());
  Header answer;
  answer.set_kind(Header::ANSWER);
  *answer.mutable_key() = question.key();
  for (const auto& [key, operation] : operations_) {
    if (answer.waits_size() == kMaxWaits) break;
    if (operation->handle() == 0 || !operation->Misses(asker) ||
        !ComesLater(question, tickets_.AwaitedFor(operation->handle(), now))) {
      continue;
    }
    proto::CollectiveWait& wait = *answer.add_waits();
    *wait.mutable_key() = ProtoOf(key);
    wait.set_operation(operation->call().what.operation());
  }
  if (options_.steps_awaited && question.main_waits()) {
    for (ModelStep& awaited : options_.steps_awaited(kSayAfter)) {
      if (answer.steps_size() == kMaxWaits) break;
      proto::CollectiveStep& step = *answer.add_steps();
      step.set_model(std::move(awaited.model));
      step.set_step(awaited.step);
    }
  }
  links_->Send(asker, std::move(answer));
}

void Mesh::OnAnswer(const Header& answer, Time now) {
  const int rank = static_cast<int>(answer.sender());
  Operation* const mine = Find(KeyOf(answer.key()));
  if (mine == nullptr || !mine->Misses(rank) ||
      !MayStall(tickets_.AwaitedFor(mine->handle(), now))) {
    return;
  }
  std::optional<CallKey> theirs;
  std::string what;
  for (const proto::CollectiveWait& wait : answer.waits()) {
    CallKey key = KeyOf(wait.key());
    if (theirs.has_value() || Find(key) != nullptr || IsPast(key)) continue;
    what = Describe(wait.operation(), key.name);
    theirs = std::move(key);
  }
  for (const proto::CollectiveStep& step : answer.steps()) {
    if (theirs.has_value() || !options_.owes_step ||
        !options_.owes_step({step.model(), step.step()})) {
      continue;
    }
    what = absl::StrCat("step ", step.step(), " of '", step.model(), "'");
    theirs = KeyOf(step);
  }
  if (!stalls_.OnAnswer(mine->key(), rank, theirs)) return;
  const std::string here = Waits(job_.rank, Describe(mine->call()));
  const std::string there = Waits(rank, what);
  // Both ranks may find out at once, and say the same.
  const bool first = job_.rank < rank;
  const absl::Status why = absl::FailedPreconditionError(
      absl::StrCat(first ? here : there, ", ", first ? there : here,
                   ": all ranks must call the same operations, equally often. "
                   "A rank that has no more batches calls join()"));
  if (theirs->set_size > 0) SendFailure(rank, *theirs, why, /*spread=*/true);
  Fail(*mine, why, Tell::kSet);
}

}  // namespace psring
