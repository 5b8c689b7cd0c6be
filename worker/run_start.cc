#include "worker/run_start.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/activity.h"
#include "common/cluster/process_names.h"
#include "common/log.h"
#include "worker/checkpoint.h"

namespace psring {
namespace {

// For a job on the same checkpoints that is just being killed; where this one
// goes on from it, until a network file system frees the lock of a lost host.
constexpr absl::Duration kLockPatience = absl::Seconds(5);
constexpr absl::Duration kResumePatience = absl::Seconds(120);

// Locked first: then no earlier job writes another one.
absl::StatusOr<RunStart> StartOfRank0(Member& member, const StartWish& wish,
                                      const Cancellation& cancellation,
                                      const proto::JobSpec& spec) {
  RunStart start;
  if (wish.directory.empty()) return start;
  const bool may_resume = wish.resume || wish.autoresume;
  auto lock = CheckpointLock::Take(
      wish.directory, may_resume,
      absl::StrCat("the job of ", Describe(member.job().workers(0))),
      Now() + (may_resume ? kResumePatience : kLockPatience), [&] {
        member.activities().own().Work("waiting for an earlier job's lock");
        return cancellation.status();
      });
  if (!lock.ok()) return lock.status();
  start.lock = std::make_unique<CheckpointLock>(*std::move(lock));
  if (!may_resume) return start;
  member.activities().own().Work("reading the checkpoint");
  auto found = FindResumePoint(wish.directory, spec);
  if (wish.autoresume && absl::IsNotFound(found.status())) {
    LogInfo("--autoresume: no checkpoint in $0, so this run begins afresh",
            wish.directory);
    return start;
  }
  if (!found.ok()) return found.status();
  start.point = *std::move(found);
  for (const std::string& path : start.point.damaged) MoveDamagedAside(path);
  return start;
}

// Worker 0 may read a checkpoint meanwhile.
absl::StatusOr<std::vector<std::string>> GatherStart(
    Member& member, const proto::JobSpec& told) {
  const WaitingForOthers waiting(member.activities().own(), "the start");
  return member.Gather("start", told.SerializeAsString(),
                       Time::InfiniteFuture());
}

// With local steps the optimizer's state is every worker's own: all begin with
// what rank 0 has saved.
absl::StatusOr<std::string> CheckpointOfOther(const StartWish& wish,
                                              const proto::JobSpec& spec) {
  if (!spec.has_first_cursor() || spec.local_steps() <= 1) return std::string();
  if (wish.directory.empty()) {
    return absl::InvalidArgumentError(
        "with --local-steps every worker reads the checkpoint: give this one "
        "worker 0's --checkpoint-dir");
  }
  return absl::StrCat(wish.directory, "/", CheckpointName(spec.first_step()));
}

}  // namespace

absl::StatusOr<RunStart> AgreeOnStart(Member& member, const StartWish& wish,
                                      const Cancellation& cancellation,
                                      proto::JobSpec& spec) {
  RunStart start;
  proto::JobSpec told;
  const bool decides = member.job().rank() == 0;
  if (decides) {
    auto mine = StartOfRank0(member, wish, cancellation, spec);
    member.activities().own().Wait();
    if (!mine.ok()) return mine.status();
    start = *std::move(mine);
    if (!start.point.checkpoint.empty()) {
      const Progress& progress = start.point.progress;
      told.set_first_step(progress.step);
      *told.mutable_first_cursor() = *progress.cursor;
      told.set_first_updates(*progress.updates);
    }
  }
  const auto all = GatherStart(member, told);
  if (!all.ok()) return all.status();
  if (!told.ParseFromString(all->front())) {
    return absl::InternalError("worker 0's message about the start is broken");
  }
  if (wish.resume && !told.has_first_cursor()) {
    return absl::FailedPreconditionError(
        "--resume: worker 0, which reads the checkpoint, was started without "
        "it. Give it to all workers");
  }
  spec.MergeFrom(told);
  if (decides) return start;
  auto checkpoint = CheckpointOfOther(wish, spec);
  if (!checkpoint.ok()) return checkpoint.status();
  start.point.checkpoint = *std::move(checkpoint);
  return start;
}

}  // namespace psring
