#include "worker/resume.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/counted.h"
#include "common/log.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "common/optim/sync_policy.h"
#include "common/state/state_files.h"
#include "worker/buffers.h"
#include "worker/checkpoint.h"
#include "worker/checkpoint_directory.h"

namespace psring {
namespace {

// How many steps made which part of the data, as the checkpoint's run had it.
JobPlan PlanThen(const Progress& then, int64_t dataset_size,
                 bool drop_last = false) {
  proto::JobSpec spec;
  spec.set_drop_last(drop_last);
  spec.set_dataset_size(dataset_size);
  spec.set_batch_size(then.batch_size);
  return PlanOf(spec, static_cast<int>(then.num_workers));
}

// Of other data, the same part of an epoch is consumed.
proto::SampleCursor CursorIn(int64_t dataset_size, const Progress& then) {
  if (!then.cursor.has_value()) {
    return PlanThen(then, dataset_size).CursorAt(then.step);
  }
  proto::SampleCursor cursor = *then.cursor;
  if (then.dataset_size > 0 && then.dataset_size != dataset_size) {
    const double part = static_cast<double>(cursor.samples()) /
                        static_cast<double>(then.dataset_size);
    cursor.set_samples(
        static_cast<int64_t>(part * static_cast<double>(dataset_size)));
  }
  return cursor;
}

// Older manifests say of files only what they were: "mnist".
bool MayBeSameData(const Progress& then, const proto::JobSpec& now) {
  if (then.dataset_size > 0 && then.dataset_size != now.dataset_size()) {
    return false;
  }
  return then.data == now.data() ||
         absl::StartsWith(now.data(), absl::StrCat(then.data, ",crc32="));
}

double MebibytesOf(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

absl::StatusOr<ResumePoint> PointAt(const std::string& checkpoint,
                                    Progress progress,
                                    const proto::JobSpec& spec) {
  const auto check = [&](const char* flag, const std::string& then,
                         const std::string& now) {
    return then == now ? absl::OkStatus()
                       : absl::FailedPreconditionError(absl::StrCat(
                             flag, ": ", checkpoint, " was made with ", then,
                             ", this run uses ", now, ". Give ", flag, "=",
                             then, ", or another --checkpoint-dir"));
  };
  absl::Status status = check("--model", progress.model, spec.model());
  status.Update(
      check("--optimizer", progress.optimizer, spec.optimizer().name()));
  if (!status.ok()) return status;
  const auto warn = [&](const char* flag, const auto& then, const auto& now) {
    LogWarning(
        "$0 was made with $1=$2: this run continues with $3, and differs from "
        "one that had not stopped",
        checkpoint, flag, then, now);
  };
  if (!MayBeSameData(progress, spec))
    warn("--data", progress.data, spec.data());
  if (progress.seed != spec.seed()) warn("--seed", progress.seed, spec.seed());
  // Sums of two have no order.
  if (progress.num_workers > 2 && progress.bucket_bytes > 0 &&
      progress.bucket_bytes != spec.bucket_bytes()) {
    warn("--bucket-mb", MebibytesOf(progress.bucket_bytes),
         MebibytesOf(spec.bucket_bytes()));
  }
  progress.cursor = CursorIn(spec.dataset_size(), progress);
  if (!progress.updates.has_value()) {  // of a run of the same policy
    progress.updates =
        progress.step *
        (PolicyOf(spec).barrier ? int64_t{1} : progress.num_workers);
  }
  return ResumePoint{.checkpoint = checkpoint, .progress = std::move(progress)};
}

}  // namespace

absl::StatusOr<ResumePoint> FindResumePoint(const std::string& directory,
                                            const proto::JobSpec& spec) {
  auto present = CheckpointsIn(directory);
  if (!present.ok()) return present.status();
  if (present->empty()) {
    return absl::NotFoundError(absl::StrCat(
        "--resume: no checkpoint in '", directory,
        "'. It must be a directory that this host sees and that holds "
        "step-...; leave --resume out for the first run"));
  }
  std::string refused;
  std::vector<std::string> damaged;
  for (; !present->empty(); present->pop_back()) {
    const std::string& path = present->back().path;
    auto progress = VerifyCheckpoint(path);
    if (progress.ok()) {
      auto point = PointAt(path, *std::move(progress), spec);
      if (point.ok()) point->damaged = std::move(damaged);
      return point;
    }
    if (absl::IsFailedPrecondition(progress.status())) return progress.status();
    if (!IsDamage(progress.status())) {
      return absl::Status(
          progress.status().code(),
          absl::StrCat("--resume: ", progress.status().message(),
                       ". Only what is damaged is passed over: make it "
                       "readable, or move the checkpoint away"));
    }
    LogWarning("refuses $0: $1", path, progress.status().message());
    damaged.push_back(path);
    absl::StrAppend(&refused, refused.empty() ? "" : "; ",
                    progress.status().message());
  }
  return absl::DataLossError(absl::StrCat("--resume: no checkpoint in ",
                                          directory, " is whole: ", refused,
                                          ". Begin anew in another directory"));
}

std::string SizeChange(const Progress& then, const proto::JobSpec& spec,
                       const JobPlan& plan, int num_workers) {
  if (then.num_workers == num_workers && then.batch_size == spec.batch_size()) {
    return "";
  }
  const EpochSteps rest = plan.EpochOf(plan.first_step);
  return absl::StrCat(
      Counted(num_workers, "worker"), " with a batch size of ",
      spec.batch_size(), " continue what ", then.num_workers, " with ",
      then.batch_size, " have begun: step ", rest.begin, " takes up epoch ",
      rest.epoch + 1, " at sample ", rest.first_sample, " of ",
      spec.dataset_size(), ", which ends at step ", rest.end, "; an epoch has ",
      plan.steps_per_epoch, " steps in place of ",
      PlanThen(then, spec.dataset_size(), spec.drop_last()).steps_per_epoch,
      ", and the learning rate's schedule follows samples");
}

absl::StatusOr<std::vector<FlatBuffer>> LoadState(const std::string& checkpoint,
                                                  const proto::JobSpec& spec,
                                                  FlatModel& flat,
                                                  const Module& model) {
  const auto optimizer = Optimizer::Create(spec.optimizer());
  if (!optimizer.ok()) return optimizer.status();
  std::vector<FlatBuffer> slots;
  std::vector<float*> pointers;
  for (int i = 0; i < optimizer->num_slots(); ++i) {
    auto slot = FlatBuffer::Create(flat.layout.num_elements());
    if (!slot.ok()) return slot.status();
    slots.push_back(*std::move(slot));
    pointers.push_back(slots.back().data());
  }
  std::vector<ExtraTensor> extras;
  if (absl::Status s = ReadStateFiles(
          checkpoint, flat.layout, optimizer->slot_names(),
          flat.parameters.data(), absl::MakeSpan(pointers), &extras);
      !s.ok()) {
    return s;
  }
  LogInfo("resumes from $0", checkpoint);
  if (spec.compress() != "none") {
    LogWarning(
        "--compress=$0: what was lost before is not in a checkpoint, so this "
        "run differs from one that had not stopped",
        spec.compress());
  }
  if (spec.local_steps() > 1 && optimizer->num_slots() > 0) {
    LogWarning(
        "--local-steps=$0: of the optimizer's states, one a worker, only "
        "worker "
        "0's is in a checkpoint, so this run differs from one that had not "
        "stopped",
        spec.local_steps());
  }
  if (absl::Status s = SetBuffers(model, extras); !s.ok()) return s;
  return slots;
}

}  // namespace psring
