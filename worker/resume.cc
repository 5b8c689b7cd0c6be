#include "worker/resume.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/optim/optimizer.h"
#include "common/state/state_files.h"
#include "spdlog/spdlog.h"
#include "worker/buffers.h"
#include "worker/checkpoint.h"

namespace psring {

absl::StatusOr<ResumePoint> FindResumePoint(const std::string& directory,
                                            const proto::JobSpec& spec) {
  const auto latest = LatestCheckpoint(directory);
  if (!latest.ok()) return latest.status();
  const auto progress = VerifyCheckpoint(*latest);
  if (!progress.ok()) return progress.status();
  const auto check = [&](const char* flag, const std::string& then,
                         const std::string& now) {
    return then == now ? absl::OkStatus()
                       : absl::FailedPreconditionError(absl::StrCat(
                             flag, ": ", *latest, " was made with ", then,
                             ", this run uses ", now));
  };
  absl::Status status = check("--model", progress->model, spec.model());
  status.Update(
      check("--optimizer", progress->optimizer, spec.optimizer().name()));
  if (!status.ok()) return status;
  if (progress->data != spec.data() ||
      progress->batch_size != spec.batch_size() ||
      progress->seed != spec.seed()) {
    spdlog::warn(
        "{} was made with data {}, batch size {}, seed {}: this run continues "
        "with others, and differs from one that had not stopped",
        *latest, progress->data, progress->batch_size, progress->seed);
  }
  return ResumePoint{*latest, progress->step};
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
  spdlog::info("resumes from {}", checkpoint);
  if (spec.compress() != "none") {
    spdlog::warn(
        "--compress={}: what was lost before is not in a checkpoint, so this "
        "run differs from one that had not stopped",
        spec.compress());
  }
  if (absl::Status s = SetBuffers(model, extras); !s.ok()) return s;
  return slots;
}

}  // namespace psring
