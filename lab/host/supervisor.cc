#include "lab/host/supervisor.h"

#include <poll.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/poll_timeout.h"

namespace psring {
namespace {

// How many processes of this host the kernel has killed because memory, a
// cgroup's included, was short; 0 where it does not tell.
int64_t KilledForMemory() {
  std::ifstream vmstat("/proc/vmstat");
  std::string name;
  int64_t value = 0;
  while (vmstat >> name >> value) {
    if (name == "oom_kill") return value;
  }
  return 0;
}

std::string WithPid(const std::string& name, pid_t pid) {
  return absl::StrCat(name, " (pid ", pid, ")");
}

}  // namespace

std::string NameOf(const Failure& failure) {
  return WithPid(failure.name, failure.pid);
}

std::string FirstLine(const Failure& failure) {
  return absl::StrCat(
      NameOf(failure), " failed: ", ToString(failure.ending),
      failure.memory_was_short
          ? "; meanwhile the kernel has killed a process for want of memory, "
            "probably this one: give the job more memory (the host's, or its "
            "container's limit), fewer workers on this host or smaller batches"
      : failure.was_stopped
          ? "; it was stopped (SIGSTOP, or another signal that stops) while "
            "others had ended"
          : "");
}

std::string ToString(const Failure& failure) {
  std::string text = FirstLine(failure);
  if (failure.last_lines.empty()) return absl::StrCat(text, "; no output");
  absl::StrAppend(&text, "; its last lines:");
  for (const std::string& line : failure.last_lines) {
    absl::StrAppend(&text, "\n  ", line);
  }
  return text;
}

Supervisor::Supervisor(const Cancellation& cancellation,
                       SupervisorOptions options)
    : cancellation_(cancellation),
      options_(std::move(options)),
      killed_for_memory_(KilledForMemory()) {}

absl::Status Supervisor::Start(Command command) {
  auto child = Child::Start(std::move(command), options_.groups);
  if (!child.ok()) return child.status();
  members_.push_back({*std::move(child), {}});
  return absl::OkStatus();
}

absl::Status Supervisor::RunUntil(const std::function<bool()>& done,
                                  Time deadline) {
  while (true) {
    // Before done(): what the caller would go on to start gets no signal.
    if (cancelled_) return cancellation_.status();
    if (done()) return absl::OkStatus();
    if (failure_) {
      return absl::AbortedError(absl::StrCat(
          failure_->name, " failed: ", ToString(failure_->ending)));
    }
    if (AllEnded()) return absl::AbortedError("every process has ended");
    if (Now() >= deadline) return absl::DeadlineExceededError("too late");
    ServeOnce();
  }
}

void Supervisor::Wait() {
  while (!AllEnded()) ServeOnce();
}

void Supervisor::Stop(std::optional<absl::Duration> grace) {
  const Time now = Now();
  plan_ = {{now, SIGTERM},
           {now + grace.value_or(options_.terminate_grace), SIGKILL}};
}

void Supervisor::ServeOnce() {
  PollMembers(Now() + options_.tick);
  CheckEnds();
  OnCancelled();
  StopTheBlamed();
  KillTheStopped();
  SendPlannedSignals();
  if (options_.on_tick) options_.on_tick();
}

// Waits for output, an end, a cancellation or the next planned signal.
void Supervisor::PollMembers(Time deadline) {
  if (!plan_.empty()) deadline = std::min(deadline, plan_.front().when);
  const auto unshown =
      options_.unshown ? options_.unshown() : SupervisorOptions::Unshown();
  const bool reads = !unshown.much || cancelled_ || !plan_.empty();
  std::vector<pollfd> fds;  // those below 0 are ignored
  for (const Member& member : members_) {
    const bool ended = member.child->ending().has_value();
    fds.push_back({reads ? member.child->output_fd() : -1, POLLIN, 0});
    fds.push_back({ended ? -1 : member.child->exit_fd(), POLLIN, 0});
  }
  fds.push_back({cancelled_ ? -1 : cancellation_.fd(), POLLIN, 0});
  fds.push_back({unshown.fd, POLLOUT, 0});
  poll(fds.data(), fds.size(), PollTimeoutMs(deadline));
  for (size_t i = 0; i < members_.size(); ++i) {
    if (fds[2 * i].revents == 0) continue;
    members_[i].child->ReadOutput(
        [&](absl::string_view line) { OnLine(members_[i], line); });
  }
}

void Supervisor::CheckEnds() {
  for (Member& member : members_) {
    if (member.child->ending()) continue;
    member.child->CheckEnd(
        [&](absl::string_view line) { OnLine(member, line); });
    if (member.child->ending() && !member.child->ending()->ok()) {
      OnFailure(member);
    }
  }
}

void Supervisor::OnLine(Member& member, absl::string_view line) {
  member.last_lines.emplace_back(line);
  if (member.last_lines.size() > options_.tail_lines) {
    member.last_lines.pop_front();
  }
  if (options_.on_line) options_.on_line(member.child->name(), line);
}

// Whoever hears of another's failure may end before that one has.
bool Supervisor::IsBlamed(const Member& member) const {
  const std::string pid = absl::StrCat(", pid ", member.child->pid(), ")");
  return std::any_of(
      failure_->last_lines.begin(), failure_->last_lines.end(),
      [&](const std::string& line) { return absl::StrContains(line, pid); });
}

void Supervisor::OnFailure(const Member& member) {
  const bool first = !failure_.has_value();
  if (!first && (signals_sent_ || !IsBlamed(member))) return;
  const Ending& ending = *member.child->ending();
  failure_ = Failure{
      member.child->name(),
      member.child->pid(),
      ending,
      {member.last_lines.begin(), member.last_lines.end()},
      Now(),
      ending.signal == SIGKILL && KilledForMemory() > killed_for_memory_,
      kills_stopped_,
  };
  if (!first || !plan_.empty()) return;  // all are being ended already
  const Time term = Now() + options_.settle;
  plan_ = {{term, SIGTERM}, {term + options_.terminate_grace, SIGKILL}};
}

void Supervisor::OnCancelled() {
  if (cancelled_ || cancellation_.status().ok()) return;
  cancelled_ = true;
  const Time now = Now();
  if (options_.stops_softly && options_.stops_softly()) {
    for (Member& member : members_) {
      if (absl::StartsWith(member.child->name(), "worker ")) {
        member.child->SignalAlone(SIGTERM);
      }
    }
    plan_ = {{now + options_.soft_grace, SIGKILL}};
    return;
  }
  plan_ = {{now, SIGINT}, {now + options_.interrupt_grace, SIGKILL}};
}

void Supervisor::StopTheBlamed() {
  if (signals_sent_ || cancelled_ || !failure_ ||
      Now() - failure_->seen < options_.settle_of_blamed) {
    return;
  }
  const bool alone =
      std::all_of(members_.begin(), members_.end(), [&](const Member& m) {
        return m.child->ending().has_value() || IsBlamed(m);
      });
  if (alone) Stop();
}

std::vector<const Supervisor::Member*> Supervisor::LeftBehind() const {
  std::vector<const Member*> left;
  for (const Member& member : members_) {
    if (!member.child->ending()) left.push_back(&member);
  }
  return left.size() < members_.size() ? left : std::vector<const Member*>();
}

std::vector<std::string> Supervisor::Remaining() const {
  std::vector<std::string> names;
  if (failure_) return names;
  for (const Member* member : LeftBehind()) {
    names.push_back(WithPid(member->child->name(), member->child->pid()));
  }
  return names;
}

void Supervisor::KillTheStopped() {
  if (failure_ || cancelled_ || !plan_.empty()) return;
  const auto left = LeftBehind();
  const bool all_stopped =
      !left.empty() && std::all_of(left.begin(), left.end(), [](auto* member) {
        return member->child->IsStopped();
      });
  if (!all_stopped) return stopped_since_.reset();
  const Time now = Now();
  if (!stopped_since_) stopped_since_ = now;
  if (now - *stopped_since_ < options_.settle_of_stopped) return;
  kills_stopped_ = true;
  plan_ = {{now, SIGKILL}};
}

void Supervisor::SendPlannedSignals() {
  while (!plan_.empty() && plan_.front().when <= Now()) {
    if (plan_.front().signal == SIGKILL) {
      for (const Member& member : members_) {
        if (member.child->ending().has_value()) continue;
        killed_.push_back(WithPid(member.child->name(), member.child->pid()));
      }
    }
    SignalAll(plan_.front().signal);
    signals_sent_ = true;
    plan_.pop_front();
  }
}

void Supervisor::SignalAll(int signal) {
  for (Member& member : members_) member.child->Signal(signal);
}

std::vector<std::string> Supervisor::SignalThoseWhoHandle(int signal) {
  std::vector<std::string> others;
  for (Member& member : members_) {
    if (member.child->SignalIfHandled(signal)) continue;
    others.push_back(member.child->name());
  }
  return others;
}

pid_t Supervisor::PidOf(const std::string& name) const {
  for (const Member& member : members_) {
    if (member.child->name() == name) return member.child->pid();
  }
  return 0;
}

bool Supervisor::AllEnded() const {
  return std::all_of(
      members_.begin(), members_.end(),
      [](const Member& member) { return member.child->ending().has_value(); });
}

}  // namespace psring
