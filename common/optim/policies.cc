#include "common/optim/policies.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/model/layout.h"
#include "common/optim/compression.h"
#include "common/optim/job_plan.h"
#include "common/optim/sync_policy.h"

namespace psring {
namespace {

// The flags that the user chose the job's consistency with.
std::string ModeOf(const proto::JobSpec& spec) {
  if (spec.mode() == proto::RING) return "--mode=ring";
  return absl::StrCat("--sync=", PolicyOf(spec).name);
}

absl::Status CheckBackupWorkers(const proto::JobSpec& spec, int num_workers) {
  const int backup = spec.backup_workers();
  if (backup == 0) return absl::OkStatus();
  if (spec.mode() == proto::RING || !PolicyOf(spec).barrier) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--backup-workers is for --mode=ps --sync=bsp, not for ", ModeOf(spec),
        spec.mode() == proto::RING ? ": a ring needs every worker's gradient"
                                   : ", which waits for no step to close"));
  }
  if (backup < 0 || (num_workers > 0 && backup >= num_workers)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--backup-workers=", backup, " of ", num_workers,
        " workers: a step closes at the first workers - backup workers "
        "gradients, so it must be from 0 to ",
        num_workers - 1));
  }
  return absl::OkStatus();
}

// A job of another build may know more policies than this one.
absl::Status CheckSync(const proto::JobSpec& spec) {
  if (spec.mode() == proto::RING || PolicyOf(spec).sync == spec.sync()) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("the job's consistency policy, number ", spec.sync(),
                   ", is not known here: start all with one build of psring"));
}

absl::Status CheckCures(const proto::JobSpec& spec) {
  const char* flag = spec.staleness_lr()                ? "--staleness-lr"
                     : spec.delay_compensation() != 0.0 ? "--delay-compensation"
                                                        : nullptr;
  if (flag == nullptr) return absl::OkStatus();
  if (PolicyOf(spec).barrier) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is for --sync=", NamesOf(IsStale), ", not for ",
                     ModeOf(spec), ", where no gradient is stale"));
  }
  if (!(spec.delay_compensation() >= 0) ||
      !std::isfinite(spec.delay_compensation())) {
    return absl::InvalidArgumentError(
        absl::StrCat("--delay-compensation must be 0 or more, not ",
                     spec.delay_compensation()));
  }
  return absl::OkStatus();
}

// An order of updates matters where chance decides on it.
absl::Status CheckRecording(const proto::JobSpec& spec) {
  const char* flag = !spec.record_dir().empty()   ? "--record"
                     : !spec.replay_dir().empty() ? "--replay"
                                                  : nullptr;
  if (flag == nullptr) return absl::OkStatus();
  if (TakesEveryGradient(spec)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " is for --sync=", NamesOf(IsStale),
                     ", and for --backup-workers, not for ", ModeOf(spec),
                     ", which ends with the same bits every time"));
  }
  return absl::OkStatus();
}

absl::Status CheckLocalSteps(const proto::JobSpec& spec) {
  if (spec.local_steps() <= 1) return absl::OkStatus();
  if (TakesEveryGradient(spec)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--local-steps averages all workers' parameters: it is for --mode=ring "
      "and --sync=bsp, not for ",
      spec.backup_workers() > 0 ? "--backup-workers" : ModeOf(spec)));
}

absl::Status CheckCompression(const proto::JobSpec& spec) {
  const auto compression = ParseCompression(spec.compress());
  if (!compression.ok()) return compression.status();
  if (compression->none()) return absl::OkStatus();
  if (spec.local_steps() > 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--compress=", spec.compress(),
        " is for gradients; with --local-steps parameters travel. Leave one of "
        "them out"));
  }
  if (spec.ring_backend() == "nccl") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--compress=", spec.compress(),
        ": NCCL sums float32 in GPU memory; use --ring-backend=host"));
  }
  return absl::OkStatus();
}

absl::Status CheckClipNorm(const proto::JobSpec& spec) {
  if (spec.clip_norm() >= 0 && std::isfinite(spec.clip_norm())) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--clip-norm must be above 0, or 0 for none, not ", spec.clip_norm()));
}

// Workers that apply an optimizer of their own take part in every step.
absl::Status CheckMeanOnly(const proto::JobSpec& spec) {
  if (!spec.mean_only() || TakesEveryGradient(spec)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "update=\"local\" steps on the mean of all workers' gradients, which ",
      spec.backup_workers() > 0 ? "backup workers do not wait for"
                                : absl::StrCat(ModeOf(spec), " has not"),
      ": use update=\"fused\", where the servers step"));
}

absl::Status CheckGroups(const proto::JobSpec& spec) {
  if (spec.groups_size() > kMaxGroups) {
    return absl::InvalidArgumentError(
        absl::StrCat(spec.groups_size(), " groups of tensors: at most ",
                     kMaxGroups, ". Merge those with equal settings"));
  }
  if (spec.groups().empty() && spec.tensor_groups().empty()) {
    return absl::OkStatus();
  }
  if (spec.tensor_groups_size() != spec.tensors_size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("groups are given for ", spec.tensor_groups_size(), " of ",
                     spec.tensors_size(), " tensors"));
  }
  for (const int group : spec.tensor_groups()) {
    if (group >= 0 && group < spec.groups_size()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a tensor of group ", group, " of ", spec.groups_size()));
  }
  for (const proto::OptimizerSettings& group : spec.groups()) {
    if (group.name() == spec.optimizer().name()) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("groups of tensors with different optimizers: ",
                     spec.optimizer().name(), " and ", group.name()));
  }
  return absl::OkStatus();
}

absl::Status CheckDropLast(const proto::JobSpec& spec, int num_workers) {
  const int64_t workers = std::max(num_workers, 1);
  const int64_t each = (spec.dataset_size() + workers - 1) / workers;
  if (!spec.drop_last() || spec.dataset_size() == 0 ||
      spec.batch_size() <= each) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--drop-last leaves nothing: a worker's ", each,
                   " samples an epoch are less than one batch of ",
                   spec.batch_size(), ". Choose a smaller --batch-size"));
}

absl::Status CheckSyncBatchNorm(const proto::JobSpec& spec) {
  if (!spec.sync_batch_norm()) return absl::OkStatus();
  if (!TakesEveryGradient(spec)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--sync-batch-norm makes workers wait for each other within a step: "
        "it is for --mode=ring, or --sync=bsp without --backup-workers"));
  }
  if (spec.local_steps() > 1 || spec.slow_size() > 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--sync-batch-norm is not for ",
        spec.local_steps() > 1
            ? "--local-steps, whose workers do not wait for each other"
            : "--slow, whose delay it would take for computing"));
  }
  if (spec.precision() == "fp16") {
    return absl::InvalidArgumentError(
        "--sync-batch-norm is not for --precision=fp16, where a worker may "
        "compute a step twice. --precision=bf16 goes with it");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPolicies(const proto::JobSpec& spec, int num_workers) {
  absl::Status status = CheckSync(spec);
  status.Update(CheckBackupWorkers(spec, num_workers));
  status.Update(CheckCures(spec));
  status.Update(CheckRecording(spec));
  status.Update(CheckLocalSteps(spec));
  status.Update(CheckCompression(spec));
  status.Update(CheckClipNorm(spec));
  status.Update(CheckMeanOnly(spec));
  status.Update(CheckDropLast(spec, num_workers));
  status.Update(CheckSyncBatchNorm(spec));
  status.Update(CheckGroups(spec));
  status.Update(CheckPlan(spec));
  return status;
}

}  // namespace psring
