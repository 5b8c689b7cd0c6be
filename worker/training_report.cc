#include "worker/training_report.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/format_loss.h"
#include "common/log.h"

namespace psring {
namespace {

constexpr absl::Duration kInterval = absl::Milliseconds(200);

}  // namespace

TrainingReport::TrainingReport(const Parts& parts, const JobPlan& plan)
    : parts_(parts), plan_(plan) {
  parts.member.figures().Update(
      [&](proto::Figures& all) { all.set_total_steps(plan.total_steps); });
}

void TrainingReport::TellStep(const State& state, const StepTimes& times) {
  const Time now = Now();
  if (now < next_ && state.step < plan_.total_steps) return;
  next_ = now + kInterval;
  WriteStep(state, times);
  TellFigures(state, times);
}

void TrainingReport::WriteStep(const State& state, const StepTimes& times) {
  const auto mean = [&](absl::Duration since) {
    return absl::ToDoubleSeconds(since) /
           static_cast<double>(
               std::max<int64_t>(state.num_steps - told_.num_steps, 1));
  };
  parts_.metrics.Write(
      {{"event", "step"},
       {"step", state.step},
       {"seconds", absl::ToDoubleSeconds(state.time)},
       {"loss", state.loss},
       {"images_per_second", state.images_per_second},
       {"learning_rate", plan_.RateAt(state.step - 1)},
       {"compute_seconds", mean(times.compute - told_.compute)},
       {"exposed_seconds", mean(times.exposed - told_.exposed)}});
  told_ = {state.num_steps, times.compute, times.exposed};
}

void TrainingReport::TellFigures(const State& state, const StepTimes& times) {
  const Traffic traffic = parts_.exchange.traffic();
  parts_.member.figures().Update([&](proto::Figures& all) {
    all.set_steps(state.num_steps);
    all.set_compute_seconds(absl::ToDoubleSeconds(times.compute));
    all.set_exposed_seconds(absl::ToDoubleSeconds(times.exposed));
    all.set_catch_up_seconds(absl::ToDoubleSeconds(times.catch_up));
    all.set_slowed_seconds(absl::ToDoubleSeconds(times.injected));
    all.set_samples(state.num_images);
    all.set_loss(state.loss);
    all.set_bytes_sent(traffic.sent);
    all.set_bytes_received(traffic.received);
  });
}

void TrainingReport::TellEpoch(const State& state, const Epoch& epoch) {
  const Evaluation& evaluation = epoch.evaluation;
  parts_.metrics.Write({{"event", "epoch"},
                        {"epoch", epoch.number},
                        {"step", state.step},
                        {"seconds", absl::ToDoubleSeconds(state.time)},
                        {"train_loss", epoch.train_loss},
                        {"test_loss", evaluation.loss},
                        {"test_accuracy", evaluation.accuracy},
                        {"images_per_second", epoch.images_per_second}});
  std::string word = absl::StrFormat("epoch %d step %d/%d: ", epoch.number,
                                     state.step, plan_.total_steps);
  const bool trained = !std::isnan(epoch.train_loss);
  if (trained)
    absl::StrAppend(&word, "train loss ", FormatLoss(epoch.train_loss), ", ");
  absl::StrAppendFormat(&word, "test loss %s, test accuracy %.4f",
                        FormatLoss(evaluation.loss), evaluation.accuracy);
  if (trained)
    absl::StrAppendFormat(&word, ", %.0f images/s", epoch.images_per_second);
  LogInfo("$0", word);
  parts_.member.figures().Update([&](proto::Figures& all) {
    all.set_evaluations(all.evaluations() + 1);
    all.set_evaluated_step(state.step);
    all.set_accuracy(evaluation.accuracy);
    all.set_test_loss(evaluation.loss);
    all.set_last_word(word);
  });
}

}  // namespace psring
