#include "lab/bench/bench_cells.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "common/counted.h"
#include "lab/host/other_load.h"
#include "lab/host/statistics.h"
#include "lab/host/units.h"

namespace psring {
namespace {

using Cells = std::vector<std::vector<std::string>>;

constexpr char kNone[] = "-";

std::string Ratio(double ratio) {
  return ratio < 10 ? absl::StrFormat("%.2f", ratio)
                    : absl::StrFormat("%.0f", ratio);
}

std::string RanksOf(const SweepPoint& point) {
  return point.servers == 0
             ? absl::StrCat(point.ranks)
             : absl::StrCat(point.ranks, " + ", point.servers, " ps");
}

// "41.2 ms (+3%)".
std::string Predicted(const SweepPoint& point) {
  return absl::StrFormat("%s (%+.0f%%)", FormatTime(point.predicted_seconds),
                         PredictionError(point) * 100);
}

// `a`'s median over `b`'s, where both were measured.
std::string RateRatio(const Training* a, const Training* b) {
  if (a == nullptr || b == nullptr) return kNone;
  return Ratio(Median(a->images_per_second) / Median(b->images_per_second));
}

// What the columns of PointCells mean.
void AddPointNotes(const BenchResults& results,
                   std::vector<std::string>& notes) {
  notes.push_back(
      results.hot
          ? "--hot: up to 32 iterations followed one another on the same "
            "buffers, which so stayed in the caches, as other projects' "
            "benchmarks leave them; then the whole result was verified. An "
            "iteration's time is from the end of the one before to its own, "
            "of the slowest rank. The limit's copies were not hot."
          : "Every result of every iteration was verified. An iteration's "
            "time is from the instant that all ranks start at to the end of "
            "the slowest; buffers are written anew before each, untimed.");
  notes.push_back(
      "algbw: size / median. busbw: what goes through the busiest link each "
      "way (allreduce: algbw x 2(n-1)/n; pushpull: algbw x max(1, n/S), or "
      "2(n-1)/n with servers on the workers' hosts). CPU s/GB: of all "
      "processes, per GB that the ranks handed in. x psring: a peer's median "
      "over psring's. server: memory of its own that the largest server held "
      "at its peak.");
  if (results.hosts == 0) {
    notes.push_back(absl::StrCat(
        "x limit: median over the memory traffic that cannot be avoided "
        "(allreduce: n reads and n writes of the size; pushpull: n+1 of each, "
        "one more of each with momentum), timed in this run as n concurrent "
        "non-temporal copies (",
        results.copy_kind,
        "), without what these waited for a core. In place and in caches it "
        "can be less than 1."));
    return;
  }
  notes.push_back(
      "x limit: median over what the busiest link needs at the rate that a "
      "plain TCP stream had in this run.");
  notes.push_back(
      "predicted: what psring predict makes of the stream's rate in this run, "
      "and how far that is from the median. It knows of nothing that this "
      "machine's cores, which all hosts share, are short of.");
  // On one host psring shares memory, and sends nothing of size.
  if (!results.encrypted) return;
  notes.push_back(
      "psring's messages were encrypted. Those of the peers are not, and the "
      "prediction knows of no encryption: --insecure measures without it.");
}

}  // namespace

Cells PointCells(const BenchResults& results) {
  Cells cells = {{"what", "ranks", "size", "median", "p99", "algbw", "busbw",
                  "x limit", "CPU s/GB", "x psring", "server"}};
  if (results.hosts > 0) cells[0].push_back("predicted");
  for (const SweepPoint& point : results.points) {
    for (const Measurement& m : point.measurements) {
      const bool ours = &m == &point.measurements.front();
      cells.push_back(
          {absl::StrCat(point.operation, " ", m.contender), RanksOf(point),
           FormatSize(point.size_bytes), FormatTime(MedianSeconds(m)),
           FormatTime(Percentile(m.seconds, 99)),
           FormatBandwidth(AlgorithmBandwidth(point, m)),
           FormatBandwidth(BusBandwidth(point, m)), Ratio(TimesLimit(point, m)),
           absl::StrFormat("%.3f", CpuSecondsPerGb(point, m)),
           ours ? kNone : Ratio(TimesPsring(point, m)),
           m.server_peak_bytes == 0
               ? kNone
               : absl::StrFormat(
                     "%.0f MB",
                     static_cast<double>(m.server_peak_bytes) / 1e6)});
      if (results.hosts == 0) continue;
      cells.back().push_back(ours ? Predicted(point) : kNone);
    }
  }
  return cells;
}

Cells LinkCells(const BenchResults& results) {
  Cells cells = {{"link", "median", "p1", "p99", "x limit", "round trip"}};
  for (const LinkStream& link : results.links) {
    const double rate = LinkRate(link);
    cells.push_back(
        {absl::StrCat(link.from, " -> ", link.to), FormatLinkRate(rate),
         FormatLinkRate(LinkRatePercentile(link, 1)),
         FormatLinkRate(LinkRatePercentile(link, 99)),
         results.link_bits_per_s > 0 ? Ratio(results.link_bits_per_s / rate)
                                     : kNone,
         link.round_trips.empty() ? kNone
                                  : FormatTime(Median(link.round_trips))});
  }
  return cells;
}

Cells TrainCells(const BenchResults& results) {
  Cells cells = {{"train", "model", "precision", "workers", "images/s",
                  "x 1 worker", "x DDP", "memory", "accuracy"}};
  for (const Training& t : results.trainings) {
    const auto find = [&](const std::string& contender, int workers) {
      return FindTraining(results, t.model, t.precision, contender, workers);
    };
    cells.push_back(
        {t.contender, t.model, t.precision, absl::StrCat(t.workers),
         absl::StrFormat("%.0f", Median(t.images_per_second)),
         RateRatio(&t, t.workers == 1 ? nullptr : find(t.contender, 1)),
         RateRatio(&t, t.contender == "ddp" ? nullptr : find("ddp", t.workers)),
         t.peak_memory_bytes == 0
             ? kNone
             : absl::StrFormat("%.0f MB",
                               static_cast<double>(t.peak_memory_bytes) / 1e6),
         t.accuracy.has_value() ? absl::StrFormat("%.1f%%", 100 * *t.accuracy)
                                : kNone});
  }
  return cells;
}

std::vector<std::string> Warnings(const BenchResults& results) {
  std::vector<std::string> warnings;
  if (!results.cut_short.empty()) {
    warnings.push_back(absl::StrCat(
        "Cut short: what was to follow is missing. ", results.cut_short));
  }
  if (results.other_cores.value_or(0) > kMuchOtherLoad) {
    warnings.push_back(absl::StrFormat(
        "Other programs kept %.1f cores busy meanwhile, and lengthened these "
        "times: measure again on a quiet host.",
        *results.other_cores));
  }
  return warnings;
}

std::vector<std::string> Notes(const BenchResults& results) {
  std::vector<std::string> notes;
  if (!results.points.empty()) AddPointNotes(results, notes);
  if (!results.links.empty()) {
    notes.push_back(
        "round trip: 1 KB there and back over plain TCP, median, while nothing "
        "else is on the way.");
  }
  if (!results.trainings.empty()) {
    notes.push_back(
        "images/s: of all workers, median. memory: of the worker that held "
        "most, what libtorch held of its GPU, or on CPUs its resident memory "
        "without what processes share. accuracy: on the test samples, after "
        "the steps.");
  }
  for (const PeerFinding& peer : results.peers) {
    notes.push_back(
        peer.found ? absl::StrCat(peer.name, ": ", peer.detail)
                   : absl::StrCat(peer.name, " is missing: ", peer.detail));
    if (peer.failure.empty()) continue;
    notes.push_back(absl::StrCat(
        peer.name, " failed, and is left out from there on: ", peer.failure));
  }
  return notes;
}

std::string NameOf(const SweepPoint& point) {
  return absl::StrCat(point.operation, ", ", point.ranks, " ranks, ",
                      FormatSize(point.size_bytes));
}

std::string NameOf(const Training& training) {
  return absl::StrCat("train ", training.model, ", ", training.precision, ", ",
                      Counted(training.workers, "worker"), ", ",
                      training.contender);
}

std::string Describe(const SweepPoint& point) {
  std::vector<std::string> parts;
  for (const Measurement& m : point.measurements) {
    parts.push_back(
        absl::StrCat(m.contender, " ", FormatTime(MedianSeconds(m))));
  }
  return absl::StrCat(NameOf(point), ": ", absl::StrJoin(parts, ", "),
                      "; the limit is ", FormatTime(point.limit_seconds),
                      point.predicted_seconds > 0
                          ? absl::StrCat(", predicted ", Predicted(point))
                          : "");
}

std::string Describe(const Training& training) {
  return absl::StrFormat("%s: %.0f images/s", NameOf(training),
                         training.images_per_second.back());
}

}  // namespace psring
