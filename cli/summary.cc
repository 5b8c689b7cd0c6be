#include "cli/summary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace psring {
namespace {

constexpr char kNone[] = "-";

using Format = std::function<std::string(const ModeResult&)>;

std::string BytesOrNone(double bytes) {
  return bytes > 0 ? FormatBytes(bytes) : kNone;
}

std::string Staleness(const ModeResult& mode) {
  return absl::StrFormat("%.2f / %d", mode.staleness_mean, mode.staleness_max);
}

std::vector<std::string> Row(const Comparison& comparison, std::string measure,
                             const Format& format) {
  std::vector<std::string> row = {std::move(measure)};
  for (const ModeResult& mode : comparison.modes) row.push_back(format(mode));
  return row;
}

void AddIdentical(const Comparison& comparison,
                  std::vector<std::string>* verdicts) {
  if (!comparison.identical_weights) return;
  const ModeResult& bsp = *FindMode(comparison, "ps-bsp");
  const ModeResult& ring = *FindMode(comparison, "ring");
  if (*comparison.identical_weights) {
    verdicts->push_back(absl::StrFormat(
        "ps-bsp and ring ended with identical weights, byte for byte (CRC-32 "
        "%08x): here the topology changes the speed and nothing else.",
        ring.weights_crc32));
  } else {
    verdicts->push_back(absl::StrFormat(
        "ps-bsp and ring ended with DIFFERENT weights (CRC-32 %08x and %08x). "
        "They should not: both sum in the same order.",
        bsp.weights_crc32, ring.weights_crc32));
  }
}

void AddFastest(const Comparison& comparison,
                std::vector<std::string>* verdicts) {
  const auto [slowest, fastest] =
      std::minmax_element(comparison.modes.begin(), comparison.modes.end(),
                          [](const ModeResult& a, const ModeResult& b) {
                            return a.images_per_second < b.images_per_second;
                          });
  if (slowest == fastest || slowest->images_per_second <= 0) return;
  verdicts->push_back(absl::StrFormat(
      "%s was the fastest with %s images/s, %.2f times %s, the slowest.",
      fastest->spec.name, FormatCount(fastest->images_per_second),
      fastest->images_per_second / slowest->images_per_second,
      slowest->spec.name));
}

void AddFirstAtTarget(const Comparison& comparison,
                      std::vector<std::string>* verdicts) {
  const double target = comparison.target_accuracy;
  const ModeResult* first = nullptr;
  for (const ModeResult& mode : comparison.modes) {
    const auto seconds = SecondsToAccuracy(mode, target);
    if (seconds && (!first || *seconds < *SecondsToAccuracy(*first, target))) {
      first = &mode;
    }
  }
  if (first == nullptr || comparison.modes.size() < 2) return;
  verdicts->push_back(absl::StrFormat(
      "%s was the first to reach %s, the accuracy that every mode reached: "
      "after %s of training.",
      first->spec.name, FormatPercent(target),
      FormatSeconds(*SecondsToAccuracy(*first, target))));
}

void AddTraffic(const Comparison& comparison,
                std::vector<std::string>* verdicts) {
  const ModeResult* bsp = FindMode(comparison, "ps-bsp");
  const ModeResult* ring = FindMode(comparison, "ring");
  if (bsp == nullptr || ring == nullptr) return;
  verdicts->push_back(absl::StrFormat(
      "Were every process a host of its own, the busiest would send %s a step "
      "with ps-bsp and %s with ring.",
      FormatBytes(
          std::max(bsp->worker_bytes_per_step, bsp->server_bytes_per_step)),
      FormatBytes(ring->worker_bytes_per_step)));
}

void AddStaleness(const Comparison& comparison,
                  std::vector<std::string>* verdicts) {
  for (const ModeResult& mode : comparison.modes) {
    if (mode.spec.sync != "ssp" && mode.spec.sync != "async") continue;
    verdicts->push_back(absl::StrFormat(
        "With %s a gradient missed %.2f updates by other workers on average "
        "and %d at worst; the final accuracy was %s.",
        mode.spec.name, mode.staleness_mean, mode.staleness_max,
        FormatPercent(mode.test_accuracy)));
  }
}

}  // namespace

Cells SummaryCells(const Comparison& comparison) {
  const double target = comparison.target_accuracy;
  const auto row = [&](std::string measure, const Format& format) {
    return Row(comparison, std::move(measure), format);
  };
  using Mode = const ModeResult&;
  return {
      row("", [](Mode m) { return m.spec.name; }),
      row("images/s", [](Mode m) { return FormatCount(m.images_per_second); }),
      row(absl::StrCat("time to ", FormatPercent(target), " accuracy"),
          [&](Mode m) {
            const auto seconds = SecondsToAccuracy(m, target);
            return seconds ? FormatSeconds(*seconds) : kNone;
          }),
      row("test accuracy",
          [](Mode m) { return FormatPercent(m.test_accuracy); }),
      row("test loss",
          [](Mode m) { return absl::StrFormat("%.4f", m.test_loss); }),
      row("sent per step, a worker",
          [](Mode m) { return BytesOrNone(m.worker_bytes_per_step); }),
      row("sent per step, a server",
          [](Mode m) { return BytesOrNone(m.server_bytes_per_step); }),
      row("peak memory, a worker",
          [](Mode m) { return BytesOrNone(m.worker_peak_bytes); }),
      row("peak memory, a server",
          [](Mode m) { return BytesOrNone(m.server_peak_bytes); }),
      row("staleness, mean / worst", Staleness),
  };
}

std::vector<std::string> Verdicts(const Comparison& comparison) {
  std::vector<std::string> verdicts;
  AddIdentical(comparison, &verdicts);
  AddFastest(comparison, &verdicts);
  AddFirstAtTarget(comparison, &verdicts);
  AddTraffic(comparison, &verdicts);
  AddStaleness(comparison, &verdicts);
  return verdicts;
}

std::string FormatCount(double number) {
  std::string digits = absl::StrFormat("%.0f", number);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) {
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string FormatBytes(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  const bool whole = unit == 0 || bytes >= 100;
  return absl::StrFormat("%.*f %s", whole ? 0 : 1, bytes, units[unit]);
}

std::string FormatPercent(double fraction) {
  return absl::StrFormat("%.2f%%", fraction * 100);
}

std::string FormatSeconds(double seconds) {
  if (seconds < 60) return absl::StrFormat("%.1f s", seconds);
  const int64_t whole = std::llround(seconds);
  return absl::StrFormat("%d:%02d min", whole / 60, whole % 60);
}

}  // namespace psring
