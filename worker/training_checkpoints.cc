#include "worker/training_checkpoints.h"

#include <c10/core/GradMode.h>

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/exchange/ends_job.h"
#include "common/log.h"
#include "common/optim/optimizer.h"
#include "worker/buffers.h"
#include "worker/checkpoint_directory.h"

namespace psring {
namespace {

// Of CheckFinite.
bool HasDiverged(const absl::Status& status) {
  return absl::IsOutOfRange(status);
}

// Of a checkpoint that cannot be written.
std::string Remedy(const absl::Status& status, const std::string& directory) {
  return absl::StrCat(
      absl::IsResourceExhausted(status) ? "make room in " : "see to ",
      directory);
}

}  // namespace

TrainingCheckpoints::TrainingCheckpoints(const Parts& parts,
                                         CheckpointOptions options,
                                         absl::Duration step_timeout,
                                         JobPlan plan, Progress start)
    : parts_(parts),
      options_(std::move(options)),
      step_timeout_(step_timeout),
      plan_(std::move(plan)),
      start_(std::move(start)),
      writes_(parts.member.job().rank() == 0 && !options_.directory.empty()) {}

absl::Status TrainingCheckpoints::Begin() {
  if (writes_) own_.AddAllIn(options_.directory);
  const auto all =
      parts_.member.Gather("saves", writes_ ? "yes" : "", Deadline());
  if (!all.ok()) return all.status();
  rank_0_writes_ = !all->front().empty();
  if (rank_0_writes_ || options_.directory.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--checkpoint-dir=", options_.directory,
      ": worker 0, which writes the checkpoints, was started without it. Give "
      "it to every worker, or to none"));
}

absl::Status TrainingCheckpoints::Meet() {
  const WaitingForOthers waiting(parts_.member.activities().own(),
                                 "a meeting of all workers");
  return parts_.exchange.Synchronise(Before::kSaveState, Deadline());
}

bool TrainingCheckpoints::IsDue(int64_t before, int64_t step) const {
  const int64_t every = options_.every;
  return rank_0_writes_ && every > 0 && step < plan_.total_steps &&
         step / every > before / every;
}

absl::Status TrainingCheckpoints::AfterSteps(int64_t before, int64_t step) {
  if (!IsDue(before, step)) return absl::OkStatus();
  if (absl::Status s = Meet(); !s.ok()) return s;
  if (const absl::Status s = Write(step, plan_.UpdatesAt(step));
      EndsJob(s) || HasDiverged(s)) {
    return s;
  } else if (!s.ok()) {
    LogWarning(
        "no checkpoint of step $0: $1. Training continues, and the next "
        "checkpoint is tried: $2",
        step, s.message(), Remedy(s, options_.directory));
  }
  return AwaitWriter();
}

absl::Status TrainingCheckpoints::AtEnd(int64_t step, int64_t updates) {
  if (!rank_0_writes_) return absl::OkStatus();
  if (absl::Status s = Meet(); !s.ok()) return s;
  absl::Status written = Write(step, updates);
  if (EndsJob(written)) return written;
  if (absl::Status s = AwaitWriter(); !s.ok()) return s;
  if (written.ok() || HasDiverged(written)) return written;
  return absl::Status(
      written.code(),
      absl::StrCat("the last checkpoint, of step ", step,
                   ", cannot be written: ", written.message(),
                   ". The weights of that step are lost. For the next run, ",
                   Remedy(written, options_.directory),
                   ", or name another --checkpoint-dir"));
}

absl::Status TrainingCheckpoints::AwaitWriter() {
  const WaitingForOthers waiting(parts_.member.activities().own(),
                                 "a checkpoint");
  return parts_.member
      .Gather(absl::StrCat("checkpoint ", num_met_++), "",
              Time::InfiniteFuture())
      .status();
}

absl::Status TrainingCheckpoints::CheckFinite(int64_t step) const {
  const c10::NoGradGuard no_grad;
  for (const NamedTensor& named : parts_.model.parameters()) {
    if (named.tensor.isfinite().all().item<bool>()) continue;
    return absl::OutOfRangeError(absl::StrCat(
        named.name, " is not finite after step ", step,
        ": training has diverged. No checkpoint is written, and the earlier "
        "ones stay. A smaller --lr or --warmup-epochs may help"));
  }
  return absl::OkStatus();
}

absl::Status TrainingCheckpoints::Write(int64_t step, int64_t updates) {
  if (!writes_) return absl::OkStatus();
  if (absl::Status s = CheckFinite(step); !s.ok()) return s;
  TimelineSpan span(parts_.track, "checkpoint", {.step = step});
  Activity& activity = parts_.member.activities().own();
  activity.Work("saving a checkpoint");
  if (options_.lock != nullptr) {
    absl::Status s = options_.lock->Keep(
        [this](const std::string& path) { return own_.IsOthers(path); });
    if (!s.ok()) return s;
  }
  const auto optimizer = Optimizer::Create(plan_.optimizer);
  if (!optimizer.ok()) return optimizer.status();
  CheckpointContents contents{.progress = start_,
                              .layout = parts_.layout,
                              .slot_names = optimizer->slot_names(),
                              .extras = BuffersOf(parts_.model)};
  contents.progress.step = step;
  contents.progress.cursor = plan_.CursorAt(step);
  contents.progress.updates = updates;
  const auto save_state = [&](const std::string& directory) {
    std::optional<WaitingForOthers> servers_write;
    if (parts_.member.job().servers_size() > 0) {
      servers_write.emplace(activity, "the servers' part of a checkpoint");
    }
    return parts_.exchange.SaveState(directory, Time::InfiniteFuture());
  };
  if (absl::Status s =
          WriteCheckpoint(options_.directory, contents, save_state, own_);
      !s.ok()) {
    return s;
  }
  own_.Add(absl::StrCat(options_.directory, "/", CheckpointName(step)));
  const std::string word =
      absl::StrCat("checkpoint of step ", step, " in ", options_.directory);
  LogInfo("$0", word);
  parts_.member.figures().Update(
      [&](proto::Figures& all) { all.set_last_word(word); });
  RemoveOldCheckpoints(options_.directory, step, options_.keep);
  return absl::OkStatus();
}

}  // namespace psring
