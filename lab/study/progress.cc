#include "lab/study/progress.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/format_loss.h"
#include "lab/page/format.h"

namespace psring {
namespace {

constexpr int kBarWidth = 12;  // the whole fits 80 columns
constexpr int kNameWidth = 10;

int64_t NumEpochs(const ProcessMetrics& worker) {
  const int64_t per_epoch = std::max<int64_t>(1, worker.steps_per_epoch);
  return (worker.total_steps + per_epoch - 1) / per_epoch;
}

std::string Eta(const ProcessMetrics& worker, const StepSample& now) {
  if (now.step <= 0) return "?";
  const double left = static_cast<double>(worker.total_steps - now.step) *
                      now.seconds / static_cast<double>(now.step);
  if (!std::isfinite(left)) return "?";
  return FormatClock(std::max(0.0, left));
}

}  // namespace

std::string ProgressLine(const std::string& name,
                         const ProcessMetrics& worker0) {
  const std::string padded = absl::StrFormat("%-*s", kNameWidth, name);
  if (worker0.total_steps <= 0 && !worker0.epochs.empty()) {
    return EpochLine(name, worker0, worker0.epochs.back());
  }
  if (worker0.steps.empty() || worker0.total_steps <= 0) {
    return absl::StrCat(padded, " starting");
  }
  const StepSample& now = worker0.steps.back();
  const int64_t total = worker0.total_steps;
  const std::string bar = ProgressBar(
      static_cast<double>(now.step) / static_cast<double>(total), kBarWidth);
  // Steps count from 1: the last one of an epoch is still in it.
  const int64_t epoch = std::max<int64_t>(0, now.step - 1) /
                            std::max<int64_t>(1, worker0.steps_per_epoch) +
                        1;
  return absl::StrFormat("%s %s epoch %d/%d  loss %s  %s images/s  ETA %s",
                         padded, bar, epoch, NumEpochs(worker0),
                         FormatLoss(now.loss),
                         FormatCount(now.images_per_second), Eta(worker0, now));
}

// A script may not tell all of it, nor how many epochs there will be.
std::string EpochLine(const std::string& name, const ProcessMetrics& worker0,
                      const EpochSample& epoch) {
  std::string text =
      absl::StrFormat("%-*s epoch %d", kNameWidth, name, epoch.epoch);
  if (const int64_t all = NumEpochs(worker0); all > 0) {
    absl::StrAppend(&text, "/", all);
  }
  absl::StrAppend(&text, ": ");
  const size_t told_nothing = text.size();
  const auto add_loss = [&text](const char* which, double loss) {
    if (std::isnan(loss)) return;
    absl::StrAppend(&text, which, " loss ", FormatLoss(loss), ", ");
  };
  add_loss("train", epoch.train_loss);
  add_loss("test", epoch.test_loss);
  if (!std::isnan(epoch.test_accuracy)) {
    absl::StrAppend(&text, "accuracy ", FormatPercent(epoch.test_accuracy),
                    ", ");
  }
  if (!std::isnan(epoch.images_per_second)) {
    absl::StrAppend(&text, FormatCount(epoch.images_per_second), " images/s, ");
  }
  if (text.size() == told_nothing) text += "no figure that is finite";
  return std::string(absl::StripSuffix(text, ", "));
}

void Progress::Show(const ProcessMetrics& worker0,
                    const std::vector<std::string>& more) {
  if (live()) {
    std::vector<std::string> lines = {ProgressLine(name_, worker0)};
    lines.insert(lines.end(), more.begin(), more.end());
    block_.Draw(std::move(lines));
    return;
  }
  for (; num_epochs_shown_ < worker0.epochs.size(); ++num_epochs_shown_) {
    const EpochSample& epoch = worker0.epochs[num_epochs_shown_];
    fputs(absl::StrCat(EpochLine(name_, worker0, epoch), "\n").c_str(), out_);
    fflush(out_);
  }
}

}  // namespace psring
