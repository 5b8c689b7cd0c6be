#include "lab/study/summary.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/format_loss.h"
#include "lab/page/format.h"

namespace psring {
namespace {

constexpr char kNothing[] = "-";
// So many variants have a column each; more have rows.
constexpr size_t kMaxColumns = 5;

using Format = std::string (*)(double);

std::string FormatMs(double seconds) {
  return absl::StrFormat("%.2f ms", seconds * 1e3);
}

// A script may tell of none.
std::string LossOrNothing(double loss) {
  return std::isnan(loss) ? kNothing : FormatLoss(loss);
}

std::string FormatAccuracy(double accuracy) {
  return std::isnan(accuracy) ? kNothing : FormatPercent(accuracy);
}

// A script may not tell of its steps.
std::string FormatRate(double rate) {
  if (std::isnan(rate)) return kNothing;
  return rate < 100 ? absl::StrFormat("%.1f", rate) : FormatCount(rate);
}

std::string BytesOrNothing(double bytes) {
  return bytes > 0 ? FormatBytes(bytes) : kNothing;
}

// "12.1 s", and in a second line "11.8 s to 12.6 s" if `ranges`.
std::string Text(const std::optional<Spread>& spread, Format format,
                 bool ranges) {
  if (!spread) return kNothing;
  const std::string mean = format(spread->mean);
  const std::string min = format(spread->min);
  const std::string max = format(spread->max);
  if (!ranges || min == max) return mean;
  return absl::StrCat(mean, "\n", min, " to ", max);
}

// One measure, of any variant.
struct Column {
  std::string name;
  std::function<std::string(const Variant&)> text;
};

Column Of(std::string name, Measure measure, Format format, bool ranges) {
  return {std::move(name), [=](const Variant& variant) {
            return Text(SpreadOf(variant, measure), format, ranges);
          }};
}

Column AccuracyColumn(bool ranges) {
  return Of(
      "test accuracy", [](const RunResult& r) { return r.test_accuracy; },
      FormatAccuracy, ranges);
}

Column TestLossColumn(bool ranges) {
  return Of(
      "test loss", [](const RunResult& r) { return r.test_loss; },
      LossOrNothing, ranges);
}

std::vector<Column> MainColumns(const Comparison& comparison, bool ranges) {
  using Run = const RunResult&;
  const Goal& goal = comparison.goal;
  const std::string target = goal.Text(goal.target);
  return {
      Of(
          RateUnit(comparison), [](Run r) { return r.images_per_second; },
          FormatRate, ranges),
      {absl::StrCat("time to ", goal.TargetText()),
       [&comparison, ranges](const Variant& variant) {
         return Text(SecondsToTarget(comparison, variant), FormatSeconds,
                     ranges);
       }},
      {absl::StrCat("steps to ", target),
       [&comparison, ranges](const Variant& variant) {
         return Text(StepsToTarget(comparison, variant), FormatCount, ranges);
       }},
      goal.score == Score::kAccuracy ? AccuracyColumn(ranges)
                                     : TestLossColumn(ranges),
      {"staleness, mean / worst",
       [](const Variant& variant) {
         const Spread mean =
             SpreadOf(variant, [](Run r) { return r.staleness_mean; });
         const Spread worst = SpreadOf(variant, [](Run r) {
           return static_cast<double>(r.staleness_max);
         });
         return absl::StrFormat("%.2f / %.0f", mean.mean, worst.max);
       }},
  };
}

// Scripts may tell of one of the two alone.
bool AnyTells(const Comparison& comparison, const Measure& measure) {
  return absl::c_any_of(comparison.variants, [&](const Variant& variant) {
    return absl::c_any_of(variant.runs, [&](const RunResult& run) {
      return !std::isnan(measure(run));
    });
  });
}

double GpuMemory(const RunResult& run) {
  return static_cast<double>(run.worker_peak_gpu_bytes);
}

bool HasGpuMemory(const Comparison& comparison) {
  return std::any_of(comparison.variants.begin(), comparison.variants.end(),
                     [](const Variant& variant) {
                       return SpreadOf(variant, GpuMemory).max > 0;
                     });
}

std::vector<Column> AllColumns(const Comparison& comparison, bool ranges) {
  using Run = const RunResult&;
  std::vector<Column> columns = MainColumns(comparison, ranges);
  const auto add = [&](const char* name, Measure measure, Format format) {
    columns.push_back(Of(name, std::move(measure), format, ranges));
  };
  const bool by_loss = comparison.goal.score == Score::kTestLoss;
  if (by_loss && AnyTells(comparison, [](Run r) { return r.test_accuracy; })) {
    columns.push_back(AccuracyColumn(ranges));
  }
  if (!by_loss && AnyTells(comparison, [](Run r) { return r.test_loss; })) {
    columns.push_back(TestLossColumn(ranges));
  }
  add(
      "sent per step, a worker", [](Run r) { return r.worker_bytes_per_step; },
      BytesOrNothing);
  add(
      "sent per step, a server", [](Run r) { return r.server_bytes_per_step; },
      BytesOrNothing);
  add(
      "peak memory, a worker",
      [](Run r) { return static_cast<double>(r.worker_peak_bytes); },
      BytesOrNothing);
  add(
      "peak memory, a server",
      [](Run r) { return static_cast<double>(r.server_peak_bytes); },
      BytesOrNothing);
  if (HasGpuMemory(comparison)) {
    add("peak GPU memory, a worker", GpuMemory, BytesOrNothing);
  }
  return columns;
}

Cells Transposed(const Cells& cells) {
  Cells transposed(cells[0].size());
  for (const auto& row : cells) {
    for (size_t i = 0; i < row.size(); ++i) transposed[i].push_back(row[i]);
  }
  return transposed;
}

// A row for each variant.
Cells RowsOf(const Comparison& comparison, const std::vector<Column>& columns) {
  Cells cells = {{""}};
  for (const Column& column : columns) cells[0].push_back(column.name);
  for (const Variant& variant : comparison.variants) {
    cells.push_back({variant.label});
    for (const Column& column : columns) {
      cells.back().push_back(column.text(variant));
    }
  }
  return cells;
}

}  // namespace

Cells SummaryCells(const Comparison& comparison) {
  const Cells rows = RowsOf(comparison, AllColumns(comparison, true));
  return comparison.variants.size() > kMaxColumns ? rows : Transposed(rows);
}

Cells ScreenCells(const Comparison& comparison) {
  if (comparison.variants.size() > kMaxColumns) {
    return RowsOf(comparison, MainColumns(comparison, false));
  }
  return Transposed(RowsOf(comparison, AllColumns(comparison, false)));
}

Cells RunCells(const Comparison& comparison) {
  Cells cells = {{"way", "seed", RateUnit(comparison), "seconds of training",
                  "time to target", "test accuracy", "test loss",
                  "weights' CRC-32"}};
  for (const Variant& variant : comparison.variants) {
    for (const RunResult& run : variant.runs) {
      const EpochSample* at = comparison.goal.FirstAt(run);
      cells.push_back(
          {variant.label, ValueOf(run.point, "seed"),
           FormatRate(run.images_per_second),
           run.seconds > 0 ? absl::StrFormat("%.2f", run.seconds) : kNothing,
           at ? FormatSeconds(at->seconds) : kNothing,
           FormatAccuracy(run.test_accuracy), LossOrNothing(run.test_loss),
           run.weights_crc32 ? absl::StrFormat("%08x", *run.weights_crc32)
                             : kNothing});
    }
  }
  return cells;
}

Cells EpochCells(const Comparison& comparison) {
  Cells cells = {{"way", "seed", "epoch", "step", "seconds", "train loss",
                  "test loss", "test accuracy"}};
  for (const Variant& variant : comparison.variants) {
    for (const RunResult& run : variant.runs) {
      for (const EpochSample& epoch : run.epochs) {
        cells.push_back({variant.label, ValueOf(run.point, "seed"),
                         absl::StrCat(epoch.epoch), absl::StrCat(epoch.step),
                         absl::StrFormat("%.2f", epoch.seconds),
                         LossOrNothing(epoch.train_loss),
                         LossOrNothing(epoch.test_loss),
                         FormatAccuracy(epoch.test_accuracy)});
      }
    }
  }
  return cells;
}

Cells TrafficCells(const Comparison& comparison) {
  Cells cells = {{"way", "process", "sent per step", "formula",
                  "sent / formula", "peak memory"}};
  for (const Variant& variant : comparison.variants) {
    const auto formula = FormulaOf(variant);
    const auto add = [&](const char* role, double sent, double computed,
                         double peak) {
      if (peak <= 0) return;
      const bool known = formula.has_value();
      cells.push_back(
          {variant.label, role,
           known ? FormatBytes(sent) : BytesOrNothing(sent),
           known ? FormatBytes(computed) : kNothing,
           known && computed > 0 ? FormatTimes(sent / computed) : kNothing,
           FormatBytes(peak)});
    };
    const auto largest = [&](Measure measure) {
      return SpreadOf(variant, measure).max;
    };
    using Run = const RunResult&;
    add("worker", largest([](Run r) { return r.worker_bytes_per_step; }),
        formula ? formula->worker_bytes : 0, largest([](Run r) {
          return static_cast<double>(r.worker_peak_bytes);
        }));
    add("server", largest([](Run r) { return r.server_bytes_per_step; }),
        formula ? formula->server_bytes : 0, largest([](Run r) {
          return static_cast<double>(r.server_peak_bytes);
        }));
  }
  return cells;
}

Cells StepTimeCells(const Comparison& comparison) {
  Cells cells = {{"way", "seed", "worker", "compute", "exchange, and waiting",
                  "injected"}};
  for (const Variant& variant : comparison.variants) {
    for (const RunResult& run : variant.runs) {
      for (const auto& [rank, time] : run.step_times) {
        cells.push_back({variant.label, ValueOf(run.point, "seed"),
                         absl::StrCat(rank), FormatMs(time.compute),
                         FormatMs(time.exposed), FormatMs(time.wait)});
      }
    }
  }
  return cells;
}

Cells PredictionCells(const Comparison& comparison) {
  Cells cells = {{"way", "predicted step", "measured step", "error"}};
  for (const Variant& variant : comparison.variants) {
    const auto prediction = PredictionOf(variant);
    if (!prediction) continue;
    cells.push_back({variant.label, FormatMs(prediction->predicted_s),
                     FormatMs(prediction->measured_s),
                     absl::StrFormat("%+.1f%%", 100 * prediction->error())});
  }
  return cells;
}

}  // namespace psring
