#include "common/cluster/member.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/process_names.h"
#include "common/counted.h"
#include "common/printable.h"

namespace psring {
namespace {

using proto::ControlMessage;

std::vector<std::string> KeysOfWorkers(const proto::Welcome& job) {
  std::vector<std::string> keys;
  for (const proto::Process& worker : job.workers()) {
    keys.push_back(worker.public_key());
  }
  return keys;
}

}  // namespace

Member::Member(Cancellation& cancellation, const MemberOptions& options)
    : cancellation_(cancellation),
      options_(options),
      outbox_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      news_(options.join.role(), options.coordinator) {}

absl::StatusOr<std::unique_ptr<Member>> Member::Join(
    Context& context, Cancellation& cancellation,
    const MemberOptions& options) {
  std::unique_ptr<Member> member(new Member(cancellation, options));
  Member* self = member.get();
  member->thread_ = std::thread([self, &context] { self->Run(context); });

  if (absl::Status s = member->AwaitWelcome(); !s.ok()) {
    member->left_ = true;
    member->PostLeave(s);  // sent before its thread ends
    return s;
  }
  // Before anybody learns where this process listens.
  context.AllowWorkers(KeysOfWorkers(member->welcome_));
  return member;
}

absl::Status Member::AwaitWelcome() {
  // The coordinator's own deadline comes first and says who is missing; its
  // time may have begun later than this process's.
  const absl::Duration patience = options_.join_timeout + absl::Seconds(5);
  const auto settled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return news_.arrived().has_value() || !failure_.ok();
  };
  MutexLock lock(&mutex_);
  const bool early = mutex_.AwaitUntil(settled, Now() + patience);
  if (!early && !mutex_.AwaitUntil(settled, first_heard_ + patience)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the coordinator at ", options_.coordinator,
                     " has not completed the job within ",
                     absl::FormatDuration(options_.join_timeout)));
  }
  if (!failure_.ok()) return failure_;
  welcome_ = *news_.arrived();
  return absl::OkStatus();
}

absl::Duration Member::heartbeat_timeout() {
  MutexLock lock(&mutex_);
  const std::optional<proto::Welcome>& job = news_.arrived();
  const int64_t of_job = job.has_value() ? job->heartbeat_timeout_ms() : 0;
  return std::max(options_.heartbeat_timeout, absl::Milliseconds(of_job));
}

Member::~Member() {
  if (!left_) {
    Leave(absl::AbortedError("the process ended early"),
          Now() + absl::Seconds(1))
        .IgnoreError();
  }
  wake_.Cancel(absl::CancelledError("the member ends"));
  if (thread_.joinable()) thread_.join();
  close(outbox_fd_);
}

absl::StatusOr<std::vector<std::string>> Member::Gather(
    const std::string& name, const std::string& payload, Time deadline,
    absl::Span<const int> among) {
  ControlMessage message;
  message.mutable_gather()->set_name(name);
  message.mutable_gather()->mutable_among()->Add(among.begin(), among.end());
  message.mutable_gather()->set_payload(payload);
  {
    MutexLock lock(&mutex_);
    news_.AwaitGathered(name);
  }
  Post(message);
  const auto settled = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return news_.HasGathered(name) || !failure_.ok() || news_.ended();
  };
  bool in_time = false;
  {
    MutexLock lock(&mutex_);
    in_time = mutex_.AwaitUntil(settled, deadline);
  }
  if (!in_time) {  // who is missing?
    message.mutable_gather()->clear_payload();
    message.mutable_gather()->set_repeat(true);
    Post(std::move(message));
  }
  // A coordinator that does not answer for as long is lost, which is said in
  // place of the answer.
  const Time answered = Now() + heartbeat_timeout();
  MutexLock lock(&mutex_);
  mutex_.AwaitUntil(settled, answered);
  std::optional<proto::Gathered> taken = news_.TakeGathered(name);
  if (!failure_.ok()) return failure_;
  if (!taken.has_value() && news_.ended()) {
    return absl::AbortedError(
        absl::StrCat("the job ended while waiting at '", name, "'"));
  }
  proto::Gathered answer = std::move(taken).value_or(proto::Gathered());
  answer.set_name(name);
  if (answer.payloads().empty()) return LateGather(answer);
  return std::vector<std::string>(answer.payloads().begin(),
                                  answer.payloads().end());
}

absl::Status Member::LateGather(const proto::Gathered& answer) const {
  const bool worker = options_.join.role() == proto::WORKER;
  const auto& processes = worker ? welcome_.workers() : welcome_.servers();
  std::vector<std::string> missing;
  for (const int rank : answer.missing()) {
    if (rank < 0 || rank >= processes.size()) continue;
    missing.push_back(Describe(processes[rank]));
  }
  const std::string who =
      missing.empty()
          ? absl::StrCat("not every ", worker ? "worker" : "server", " has")
          : absl::StrCat(ShortList(missing),
                         missing.size() == 1 ? " has" : " have", " not");
  return absl::DeadlineExceededError(
      absl::StrCat(who, " reached '", answer.name(), "' in time"));
}

void Member::Announce(proto::Role to, const std::string& name,
                      std::string payload) {
  ControlMessage message;
  message.mutable_announce()->set_to(to);
  message.mutable_announce()->set_name(name);
  message.mutable_announce()->set_payload(std::move(payload));
  Post(std::move(message));
}

absl::StatusOr<std::string> Member::AwaitAnnouncement(const std::string& name,
                                                      Time deadline) {
  MutexLock lock(&mutex_);
  std::deque<proto::Announce>& announced = news_.announced();
  auto found = announced.end();
  const auto settled = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    found = std::find_if(announced.begin(), announced.end(),
                         [&](const auto& a) { return a.name() == name; });
    return found != announced.end() || !failure_.ok() || news_.ended();
  };
  if (!mutex_.AwaitUntil(settled, deadline)) {
    return absl::DeadlineExceededError(
        absl::StrCat("nobody has announced '", name, "' in time"));
  }
  if (!failure_.ok()) return failure_;
  if (found == announced.end()) {
    return absl::AbortedError(
        absl::StrCat("the job ended while waiting for '", name, "'"));
  }
  std::string payload = std::move(*found->mutable_payload());
  announced.erase(found);
  return payload;
}

absl::StatusOr<std::optional<proto::Announce>> Member::NextAnnouncement() {
  MutexLock lock(&mutex_);
  std::deque<proto::Announce>& announced = news_.announced();
  const auto settled = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !announced.empty() || !failure_.ok() || news_.ended();
  };
  mutex_.Await(settled);  // the coordinator's silence ends it
  if (!failure_.ok()) return failure_;
  if (announced.empty()) {
    left_ = true;
    return std::nullopt;
  }
  proto::Announce next = std::move(announced.front());
  announced.pop_front();
  return next;
}

absl::Status Member::Leave(const absl::Status& result, Time deadline) {
  left_ = true;
  PostLeave(result);
  MutexLock lock(&mutex_);
  const auto settled = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return news_.ended() || !failure_.ok();
  };
  const bool in_time = mutex_.AwaitUntil(settled, deadline);
  if (!result.ok()) {
    return news_.hang() && absl::IsDeadlineExceeded(result) ? failure_ : result;
  }
  if (!failure_.ok()) return failure_;
  if (!in_time) {
    return absl::DeadlineExceededError(
        "this worker has finished, but the others have not in time");
  }
  return absl::OkStatus();
}

void Member::PostLeave(const absl::Status& result) {
  ControlMessage message;
  message.mutable_leave()->set_error(Printable(result.message()));
  message.mutable_leave()->set_timed_out(absl::IsDeadlineExceeded(result));
  message.mutable_leave()->set_step(step_.load());
  *message.mutable_leave()->mutable_figures() =
      figures_.Take(coordinator_clock());
  Post(std::move(message));
}

void Member::Post(ControlMessage message) {
  {
    MutexLock lock(&mutex_);
    outbox_.push_back(std::move(message));
  }
  const uint64_t one = 1;
  [[maybe_unused]] ssize_t written = write(outbox_fd_, &one, sizeof(one));
}

std::optional<ClockOffset> Member::coordinator_clock() {
  MutexLock lock(&mutex_);
  return news_.clock();
}

std::vector<int> Member::workers_left() {
  MutexLock lock(&mutex_);
  return news_.workers_left();
}

}  // namespace psring
