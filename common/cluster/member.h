// Every process's side of the job: join, heartbeat, gather, leave.
//
// A thread of its own owns the control socket, so that heartbeats go out while
// the process computes. When the job fails anywhere, the process's Cancellation
// says why, and whatever waits on it wakes.
#ifndef PSRING_COMMON_CLUSTER_MEMBER_H_
#define PSRING_COMMON_CLUSTER_MEMBER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/cluster/activity.h"
#include "common/cluster/clock_offset.h"
#include "common/cluster/figures.h"
#include "common/cluster/member_news.h"
#include "common/cluster/membership.h"
#include "common/mutex.h"
#include "common/net/cancellation.h"
#include "common/net/socket.h"
#include "protos/cluster.pb.h"

namespace psring {

struct MemberOptions {
  std::string coordinator;  // "tcp://10.0.0.1:7000"
  proto::Join join;         // its protocol version is filled in
  absl::Duration join_timeout = absl::Seconds(60);
  // A coordinator that is silent for longer than this, and than the job's own
  // timeout, is lost.
  absl::Duration heartbeat_timeout = kHeartbeatTimeout;
  // Called on the member's thread where the job ends because this process
  // hangs. Must not block. Empty: nothing.
  std::function<void()> on_hang = nullptr;
};

class Member {
 public:
  // Blocks until the job is complete. Errors: nobody answers at the
  // coordinator's address, the coordinator's refusal, a job that does not form,
  // a cancelled process. `cancellation` is cancelled when the job fails later.
  // The coordinator of an earlier job at that address, which is over or has
  // lost a process, is not the one: this process waits for its successor.
  static absl::StatusOr<std::unique_ptr<Member>> Join(
      Context& context, Cancellation& cancellation,
      const MemberOptions& options);

  // Without Leave before it, tells the others that this process failed.
  ~Member();

  // Who takes part and this process's rank; fixed after Join.
  const proto::Welcome& job() const { return welcome_; }

  bool is_worker() const { return options_.join.role() == proto::WORKER; }

  // Whoever is silent for longer is lost: the longer of this process's timeout
  // and, once the job is complete, the coordinator's. Any thread.
  absl::Duration heartbeat_timeout();

  // Blocks until every process of this role has contributed under `name`, or
  // those of the ranks `among` (ascending), this one among them; their payloads
  // by rank. Every such process makes the same gathers. A name is not in use
  // twice at a time. Callable from any thread. DEADLINE_EXCEEDED names who has
  // not contributed, which may take a second more.
  absl::StatusOr<std::vector<std::string>> Gather(
      const std::string& name, const std::string& payload, Time deadline,
      absl::Span<const int> among = {});

  // Tells every process of the role `to`. Any thread; never blocks. What
  // AwaitAnnouncement waits for has a name that is used once.
  void Announce(proto::Role to, const std::string& name, std::string payload);

  // Blocks until that has been announced to this process's role; the payload.
  // DEADLINE_EXCEEDED, the job's failure, or ABORTED where it has ended. Any
  // thread.
  absl::StatusOr<std::string> AwaitAnnouncement(const std::string& name,
                                                Time deadline);

  // Blocks until anything is announced to this process's role, in the order of
  // arrival; nothing once the job has ended. A thread that calls it is the only
  // one that awaits announcements.
  absl::StatusOr<std::optional<proto::Announce>> NextAnnouncement();

  // The ranks of the workers that have done their part while this process
  // stays, in the order in which they left. Any thread.
  std::vector<int> workers_left();

  // Tells the next heartbeats how far this process is. Any thread.
  void ReportStep(int64_t step) { step_.store(step); }
  // What this process's threads do, as heartbeats tell it.
  ActivityBoard& activities() { return activities_; }
  // What it says of itself, for people to look at.
  FigureBoard& figures() { return figures_; }

  // How far the coordinator's clock is ahead, as the heartbeats have found out
  // so far. Any thread.
  std::optional<ClockOffset> coordinator_clock();

  // A worker that has done its part (`result` OK), or a process that cannot go
  // on. Blocks until the job has ended for all or the deadline; returns the
  // job's result, or `result` itself where it is an error. Where that is
  // DEADLINE_EXCEEDED because another process hangs, the error names it.
  absl::Status Leave(const absl::Status& result, Time deadline);

 private:
  Member(Cancellation& cancellation, const MemberOptions& options);

  absl::Status AwaitWelcome();
  void Run(Context& context);
  void Introduce(const Context& context);
  void OnEarlierJob(const std::string& reason);
  void Receive(Socket& socket);
  bool NamesThisAsHung(const absl::Status& failure);
  proto::ControlMessage Beat(Time now);
  // Says in the log whom this process waits for: after kLongWait, and at twice
  // the time again.
  void TellWait(const std::string& held_up_by);
  void SendOutbox(Socket& socket);
  void CheckCoordinator(Time now);
  void Post(proto::ControlMessage message);
  void PostLeave(const absl::Status& result);
  // The error of a gather that was not complete in time.
  absl::Status LateGather(const proto::Gathered& answer) const;
  void Fail(absl::Status why);
  std::string CoordinatorName();

  // Fixed after construction.
  Cancellation& cancellation_;
  const MemberOptions options_;
  proto::Welcome welcome_;  // fixed after Join

  // The thread's own.
  Time last_heard_ = Time::InfinitePast();
  Time next_join_ = Time::InfinitePast();
  std::string earlier_job_;  // how one has ended that was met here; empty: none
  ActivityBoard::Report activity_;  // of the last heartbeat
  absl::Duration next_told_wait_ = kLongWait;

  ActivityBoard activities_;
  FigureBoard figures_;
  std::atomic<int64_t> step_ = 0;
  Cancellation wake_;  // its fd wakes the thread to stop
  const int outbox_fd_;

  Mutex mutex_;
  std::deque<proto::ControlMessage> outbox_ ABSL_GUARDED_BY(mutex_);
  MemberNews news_ ABSL_GUARDED_BY(mutex_);
  // The coordinator's first word; InfinitePast: none yet.
  Time first_heard_ ABSL_GUARDED_BY(mutex_) = Time::InfinitePast();
  absl::Status failure_ ABSL_GUARDED_BY(mutex_);

  std::atomic<bool> left_ = false;
  std::thread thread_;
};

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_MEMBER_H_
