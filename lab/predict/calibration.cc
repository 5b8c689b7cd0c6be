#include "lab/predict/calibration.h"

#include <algorithm>
#include <cmath>
#include <utility>
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

// Where `cost` is least, from `from` to `to`, if it falls up to there and then
// rises: the golden-section search (Kiefer, 1953), by the logarithm.
template <typename Cost>
double Cheapest(double from, double to, const Cost& cost) {
  const double golden = (std::sqrt(5.0) - 1) / 2;
  double least = std::log(from), most = std::log(to);
  double a = most - golden * (most - least),
         b = least + golden * (most - least);
  double cost_a = cost(std::exp(a)), cost_b = cost(std::exp(b));
  for (int i = 0; i < 24; ++i) {
    if (cost_a <= cost_b) {
      most = std::exchange(b, a);
      cost_b = cost_a;
      a = most - golden * (most - least);
      cost_a = cost(std::exp(a));
    } else {
      least = std::exchange(a, b);
      cost_a = cost_b;
      b = least + golden * (most - least);
      cost_b = cost(std::exp(b));
    }
  }
  return std::exp((least + most) / 2);
}

// Of an exchange in which bytes cost more than messages.
constexpr int64_t kLargeBytes = 1'000'000;

double SquaredError(const Hardware& hardware,
                    absl::Span<const MeasuredExchange> measured) {
  double sum = 0;
  for (const MeasuredExchange& exchange : measured) {
    const double error =
        std::log(PredictExchange(hardware, exchange) / exchange.seconds);
    sum += error * error;
  }
  return sum;
}

// The error that is left.
double FitLatency(absl::Span<const MeasuredExchange> measured,
                  Hardware* hardware) {
  if (measured.empty()) return 0;
  const auto error = [&](double seconds) {
    hardware->latency_s = seconds;
    return SquaredError(*hardware, measured);
  };
  return error(Cheapest(1e-6, 10e-3, error));
}

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

void CalibrateMessages(absl::Span<const MeasuredExchange> measured, int cores,
                       Hardware* ring, Hardware* ps) {
  std::vector<MeasuredExchange> rings, others;
  for (const MeasuredExchange& exchange : measured) {
    (exchange.topology.kind == TopologyKind::kRing ? rings : others)
        .push_back(exchange);
  }
  ring->shared_cores = ps->shared_cores = cores;
  const auto error_of_best_latencies = [&](double message_s) {
    ring->cpu_s_per_message = ps->cpu_s_per_message = message_s;
    return FitLatency(rings, ring) + FitLatency(others, ps);
  };
  error_of_best_latencies(Cheapest(1e-6, 0.3e-3, error_of_best_latencies));
}

}  // namespace psring
