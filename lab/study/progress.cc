#include "lab/study/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
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
  const int64_t seconds = std::llround(std::max(0.0, left));
  return absl::StrFormat("%d:%02d", seconds / 60, seconds % 60);
}

}  // namespace

std::string ProgressBar(const std::string& name,
                        const ProcessMetrics& worker0) {
  const std::string padded = absl::StrFormat("%-*s", kNameWidth, name);
  if (worker0.steps.empty() || worker0.total_steps <= 0) {
    return absl::StrCat(padded, " starting");
  }
  const StepSample& now = worker0.steps.back();
  const int64_t total = worker0.total_steps;
  const int filled = static_cast<int>(
      std::clamp<int64_t>(kBarWidth * now.step / total, 0, kBarWidth));
  // Steps count from 1: the last one of an epoch is still in it.
  const int64_t epoch = std::max<int64_t>(0, now.step - 1) /
                            std::max<int64_t>(1, worker0.steps_per_epoch) +
                        1;
  return absl::StrFormat(
      "%s [%s%s] epoch %d/%d  loss %.4f  %s images/s  ETA %s", padded,
      std::string(filled, '#'), std::string(kBarWidth - filled, '.'), epoch,
      NumEpochs(worker0), now.loss, FormatCount(now.images_per_second),
      Eta(worker0, now));
}

std::string EpochLine(const std::string& name, const ProcessMetrics& worker0,
                      const EpochSample& epoch) {
  return absl::StrFormat(
      "%-*s epoch %d/%d: train loss %.4f, test loss %.4f, accuracy %s, %s "
      "images/s",
      kNameWidth, name, epoch.epoch, NumEpochs(worker0), epoch.train_loss,
      epoch.test_loss, FormatPercent(epoch.test_accuracy),
      FormatCount(epoch.images_per_second));
}

void Progress::Show(const ProcessMetrics& worker0) {
  if (columns_ > 0) {
    // A line that wraps could not be redrawn.
    const std::string bar = ProgressBar(name_, worker0).substr(0, columns_ - 1);
    if (bar == bar_) return;
    bar_ = bar;
    // Back to the line's start, and its old rest erased.
    fputs(absl::StrCat("\r", bar, "\033[K").c_str(), out_);
    fflush(out_);
    return;
  }
  for (; num_epochs_shown_ < worker0.epochs.size(); ++num_epochs_shown_) {
    const EpochSample& epoch = worker0.epochs[num_epochs_shown_];
    fputs(absl::StrCat(EpochLine(name_, worker0, epoch), "\n").c_str(), out_);
    fflush(out_);
  }
}

void Progress::Finish() {
  if (bar_.empty()) return;
  fputs("\n", out_);
  fflush(out_);
}

int TerminalColumns(FILE* out) {
  if (!isatty(fileno(out))) return 0;
  winsize size = {};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

}  // namespace psring
