#include "common/optim/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace psring {
namespace {

double Cosine(const proto::LrSchedule& schedule, double base, double step) {
  const auto warmup = static_cast<double>(schedule.warmup_steps());
  const auto total = static_cast<double>(schedule.total_steps());
  if (step >= total) return 0;
  const double t = (step - warmup) / (total - warmup);
  return base * (1 + std::cos(M_PI * t)) / 2;
}

}  // namespace

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
