#include "lab/predict/calibration.h"

#include <algorithm>
#include <vector>

#include "common/model/layout.h"
#include "lab/predict/compute.h"
#include "lab/predict/predict_step.h"

namespace psring {
namespace {

// What goes between hosts in one exchange.
double TrafficBytes(const MeasuredExchange& measured) {
  const Topology& topology = measured.topology;
  const double n = topology.workers;
  const auto bytes = static_cast<double>(measured.bytes);
  if (topology.kind == TopologyKind::kRing) return 2 * (n - 1) * bytes;
  return 2 * bytes * (topology.colocated ? n - 1 : n);
}

// The largest x from `least` to `most` for which `fits`, which holds up to some
// x.
template <typename Fits>
double Largest(double least, double most, const Fits& fits) {
  for (int i = 0; i < 40; ++i) {
    const double middle = (least + most) / 2;
    (fits(middle) ? least : most) = middle;
  }
  return least;
}

// Of an exchange in which bytes cost more than messages.
constexpr int64_t kLargeBytes = 1'000'000;

}  // namespace

Workload ExchangeWorkload(TopologyKind kind, int64_t bytes) {
  const int64_t elements = bytes / static_cast<int64_t>(sizeof(float));
  Workload workload;
  if (kind == TopologyKind::kRing) {
    workload.buckets = {elements};
    workload.updates = false;
  } else {
    workload.buckets = CutBuckets(elements, kDefaultBucketBytes);
  }
  return workload;
}

double PredictExchange(const Hardware& hardware,
                       const MeasuredExchange& exchange) {
  return PredictStep(hardware,
                     ExchangeWorkload(exchange.topology.kind, exchange.bytes),
                     exchange.topology)
      .step_s;
}

void CalibrateLink(const MeasuredExchange& measured, Hardware* hardware) {
  const double before = hardware->link_bytes_per_s;
  for (int i = 0; i < 4; ++i) {
    hardware->link_bytes_per_s =
        std::clamp(hardware->link_bytes_per_s *
                       PredictExchange(*hardware, measured) / measured.seconds,
                   0.8 * before, 1.05 * before);
  }
}

void CalibrateCores(absl::Span<const MeasuredExchange> measured, int cores,
                    Hardware* hardware) {
  std::vector<double> costs;
  for (const MeasuredExchange& exchange : measured) {
    const double bytes = TrafficBytes(exchange);
    if (exchange.cpu_seconds <= 0 || bytes == 0) continue;
    if (exchange.bytes < kLargeBytes) continue;
    costs.push_back(exchange.cpu_seconds / bytes);
  }
  if (costs.empty()) return;
  const auto middle =
      costs.begin() + static_cast<int64_t>(costs.size() - 1) / 2;
  std::nth_element(costs.begin(), middle, costs.end());
  hardware->shared_cores = cores;
  hardware->cpu_s_per_byte = *middle;
}

void CalibrateLatency(const MeasuredExchange& measured, Hardware* hardware) {
  hardware->latency_s = Largest(1e-6, 10e-3, [&](double seconds) {
    hardware->latency_s = seconds;
    return PredictExchange(*hardware, measured) <= measured.seconds;
  });
}

void CalibrateMessages(const MeasuredExchange& fewer,
                       const MeasuredExchange& more, int cores,
                       Hardware* hardware) {
  hardware->shared_cores = cores;
  // Each changes the other a little.
  for (int round = 0; round < 3; ++round) {
    CalibrateLatency(fewer, hardware);
    hardware->cpu_s_per_message = Largest(0, 1e-3, [&](double seconds) {
      hardware->cpu_s_per_message = seconds;
      return PredictExchange(*hardware, more) -
                 PredictExchange(*hardware, fewer) <=
             more.seconds - fewer.seconds;
    });
  }
  CalibrateLatency(fewer, hardware);
}

}  // namespace psring
