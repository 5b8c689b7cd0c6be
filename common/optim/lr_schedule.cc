#include "common/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace psring {
namespace {

absl::Status Bad(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("learning rate: ", what));
}

absl::Status CheckStep(const proto::LrSchedule& schedule) {
  if (schedule.decay_every_steps() < 1) {
    return Bad(absl::StrCat("the step schedule needs decay_every_steps >= 1, ",
                            "not ", schedule.decay_every_steps()));
  }
  if (!std::isfinite(schedule.decay_factor()) || schedule.decay_factor() <= 0) {
    return Bad(absl::StrCat("the step schedule needs decay_factor > 0, not ",
                            schedule.decay_factor()));
  }
  return absl::OkStatus();
}

absl::Status CheckCosine(const proto::LrSchedule& schedule) {
  if (schedule.total_steps() < 1) {
    return Bad(absl::StrCat("the cosine schedule needs total_steps >= 1, not ",
                            schedule.total_steps()));
  }
  if (schedule.total_steps() < schedule.warmup_steps()) {
    return Bad(absl::StrCat("warmup_steps (", schedule.warmup_steps(),
                            ") exceeds total_steps (", schedule.total_steps(),
                            ") of the cosine schedule"));
  }
  return absl::OkStatus();
}

double Cosine(const proto::LrSchedule& schedule, double base, double step) {
  const auto warmup = static_cast<double>(schedule.warmup_steps());
  const auto total = static_cast<double>(schedule.total_steps());
  if (step >= total) return 0;
  const double t = (step - warmup) / (total - warmup);
  return base * (1 + std::cos(M_PI * t)) / 2;
}

}  // namespace

absl::Status CheckSchedule(const proto::LrSchedule& schedule) {
  if (schedule.warmup_steps() < 0) {
    return Bad(absl::StrCat("warmup_steps must be >= 0, not ",
                            schedule.warmup_steps()));
  }
  if (schedule.kind() == "constant") return absl::OkStatus();
  if (schedule.kind() == "step") return CheckStep(schedule);
  if (schedule.kind() == "cosine") return CheckCosine(schedule);
  return Bad(absl::StrCat("unknown schedule \"", schedule.kind(),
                          "\"; choose constant, step or cosine"));
}

double LearningRate(const proto::LrSchedule& schedule, double base,
                    double step) {
  const auto warmup = static_cast<double>(schedule.warmup_steps());
  if (step < warmup) return base * std::min(step + 1, warmup) / warmup;
  if (schedule.kind() == "step") {
    const int64_t decays =
        static_cast<int64_t>(step) / schedule.decay_every_steps();
    return base * std::pow(schedule.decay_factor(), decays);
  }
  if (schedule.kind() == "cosine") return Cosine(schedule, base, step);
  return base;
}

}  // namespace psring
