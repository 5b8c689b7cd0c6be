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

void CalibrateLink(const MeasuredExchange& measured, Hardware* hardware) {
  const double before = hardware->link_bytes_per_s;
  const Workload workload =
      ExchangeWorkload(measured.topology.kind, measured.bytes);
  for (int i = 0; i < 4; ++i) {
    const double predicted =
        PredictStep(*hardware, workload, measured.topology).step_s;
    hardware->link_bytes_per_s =
        std::clamp(hardware->link_bytes_per_s * predicted / measured.seconds,
                   0.8 * before, 1.05 * before);
  }
}

void CalibrateCores(absl::Span<const MeasuredExchange> measured, int cores,
                    Hardware* hardware) {
  std::vector<double> costs;
  for (const MeasuredExchange& exchange : measured) {
    const double bytes = TrafficBytes(exchange);
    if (exchange.cpu_seconds <= 0 || bytes == 0) continue;
    costs.push_back(exchange.cpu_seconds / bytes);
  }
  if (costs.empty()) return;
  const auto middle =
      costs.begin() + static_cast<int64_t>(costs.size() - 1) / 2;
  std::nth_element(costs.begin(), middle, costs.end());
  hardware->shared_cores = cores;
  hardware->cpu_s_per_byte = *middle;
}

}  // namespace psring
