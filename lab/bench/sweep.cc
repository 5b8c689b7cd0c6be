#include "lab/bench/sweep.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/host_cores.h"
#include "lab/bench/limits.h"
#include "lab/bench/pattern.h"
#include "lab/bench/predicted.h"
#include "lab/host/statistics.h"
#include "lab/host/units.h"

namespace psring {
namespace {

class Sweep {
 public:
  Sweep(const Stage& stage, const SweepOptions& options)
      : stage_(stage),
        options_(options),
        peers_(options.peers),
        psring_(MakePsring(stage, options.operation)),
        copy_(MakePsring(stage, "copy")) {}

  absl::StatusOr<SweepPoint> Measure(int ranks, int64_t size_bytes) {
    SweepPoint point;
    point.operation = options_.operation;
    point.ranks = ranks;
    point.servers = pushpull() ? options_.servers : 0;
    point.size_bytes = size_bytes;
    point.link_load =
        pushpull() ? PushPullLinkLoad(ranks, options_.servers, stage_.placement)
                   : AllReduceLinkLoad(ranks);
    if (options_.on_start) options_.on_start(point);
    for (int round = 0; round < options_.rounds; ++round) {
      if (absl::Status s = MeasureRound(&point); !s.ok()) return s;
    }
    point.limit_seconds = LimitOf(point);
    if (stage_.hosts != nullptr) {
      point.predicted_seconds =
          PredictExchange(HardwareOfHosts(options_.link_bits_per_s),
                          ExchangeOf(point, stage_.placement));
    }
    return point;
  }

 private:
  bool pushpull() const { return options_.operation == "pushpull"; }

  absl::Status MeasureRound(SweepPoint* point) {
    const int64_t all = IterationsFor(point->size_bytes, options_.iterations);
    const Shape shape = {
        .ranks = point->ranks,
        .servers = options_.servers,
        .size_bytes = point->size_bytes,
        .iterations = (all + options_.rounds - 1) / options_.rounds,
        .warmup = options_.warmup,
        .batch = options_.hot ? MaxExactRuns(point->ranks) : 1};
    if (stage_.hosts == nullptr) {
      Shape cold = shape;
      cold.batch = 1;
      auto samples = Run(*copy_, "the copy", cold);
      if (!samples.ok()) return samples.status();
      for (size_t i = 0; i < samples->seconds.size(); ++i) {
        point->copy_seconds.push_back(CopySeconds(samples->seconds[i],
                                                  samples->cpu_seconds[i],
                                                  point->ranks, HostCores()));
      }
    }
    if (absl::Status s = RunContender(*psring_, shape, point); !s.ok()) {
      return s;
    }
    return RunPeers(shape, point);
  }

  absl::Status RunPeers(const Shape& shape, SweepPoint* point) {
    for (size_t i = 0; i < peers_.size();) {
      const absl::Status status = RunContender(*peers_[i], shape, point);
      if (status.ok()) {
        ++i;
        continue;
      }
      const bool leaves_out = stage_.cancellation.status().ok() &&
                              options_.leaves_out &&
                              options_.leaves_out(peers_[i]->name(), status);
      if (!leaves_out) return status;
      peers_.erase(peers_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    return absl::OkStatus();
  }

  absl::Status RunContender(Contender& contender, const Shape& shape,
                            SweepPoint* point) {
    auto samples = Run(contender, contender.name(), shape);
    if (!samples.ok()) return samples.status();
    auto& all = point->measurements;
    auto found = std::find_if(
        all.begin(), all.end(), [&](const Measurement& measurement) {
          return measurement.contender == contender.name();
        });
    if (found == all.end()) {
      found = all.insert(all.end(), Measurement{contender.name(), {}, 0, 0});
    }
    found->seconds.insert(found->seconds.end(), samples->seconds.begin(),
                          samples->seconds.end());
    found->server_peak_bytes =
        std::max(found->server_peak_bytes, samples->server_peak_bytes);
    found->cpu_seconds += samples->server_cpu_seconds +
                          std::accumulate(samples->cpu_seconds.begin(),
                                          samples->cpu_seconds.end(), 0.0);
    return absl::OkStatus();
  }

  absl::StatusOr<Samples> Run(Contender& contender, const std::string& name,
                              const Shape& shape) {
    auto samples = contender.Run(shape);
    if (samples.ok()) return samples;
    return absl::Status(
        samples.status().code(),
        absl::StrCat(options_.operation, " of ", FormatSize(shape.size_bytes),
                     " on ", shape.ranks, " ranks, ", name, ": ",
                     std::string(samples.status().message())));
  }

  double LimitOf(const SweepPoint& point) const {
    if (stage_.hosts != nullptr) {
      return LinkLimit(point.link_load, point.size_bytes,
                       options_.link_bits_per_s);
    }
    const double copy = Median(point.copy_seconds);
    const int slots = stage_.optimizer == "momentum" ? 1 : 0;
    return pushpull() ? PushPullMemoryLimit(copy, point.ranks, slots)
                      : AllReduceMemoryLimit(copy);
  }

  const Stage& stage_;
  const SweepOptions& options_;
  std::vector<Contender*> peers_;  // that have not failed
  const std::unique_ptr<Contender> psring_;
  const std::unique_ptr<Contender> copy_;
};

}  // namespace

int64_t IterationsFor(int64_t size_bytes, int64_t iterations) {
  constexpr int64_t kAsMuchAs = 10'000'000;
  const int64_t factor =
      std::clamp<int64_t>(kAsMuchAs / std::max<int64_t>(size_bytes, 1), 1, 10);
  return iterations * factor;
}

absl::StatusOr<std::vector<SweepPoint>> RunSweep(const Stage& stage,
                                                 const SweepOptions& options) {
  Sweep sweep(stage, options);
  std::vector<SweepPoint> points;
  for (const int ranks : options.ranks) {
    for (const int64_t size : options.sizes) {
      auto point = sweep.Measure(ranks, size);
      if (!point.ok()) return point.status();
      if (options.on_point) options.on_point(*point);
      points.push_back(*std::move(point));
    }
  }
  return points;
}

}  // namespace psring
