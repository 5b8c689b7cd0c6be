#include "predict/calibration.h"

#include <algorithm>
#include <cmath>

#include "common/model/layout.h"
#include "predict/predict_step.h"

namespace psring {
namespace {

// What goes between hosts in one exchange.
struct Traffic {
  double bytes = 0;
  double messages = 0;
};

Traffic TrafficOf(const MeasuredExchange& measured, int shards) {
  const Topology& topology = measured.topology;
  const double n = topology.workers;
  const auto bytes = static_cast<double>(measured.bytes);
  Traffic traffic;
  double parts = n;
  double most = kSegmentElements * sizeof(float);
  if (topology.kind == TopologyKind::kRing) {
    traffic.bytes = 2 * (n - 1) * bytes;
  } else {
    const double away = topology.colocated ? (n - 1) / n : 1.0;
    traffic.bytes = 2 * n * bytes * away;
    parts = static_cast<double>(topology.num_servers()) * shards;
    most = kPieceElements * sizeof(float);
  }
  const double part = bytes / parts;
  traffic.messages = traffic.bytes / part * std::ceil(part / most);
  return traffic;
}

}  // namespace

Workload ExchangeWorkload(TopologyKind kind, int64_t bytes) {
  const int64_t elements = bytes / static_cast<int64_t>(sizeof(float));
  constexpr int64_t kBucketElements = (25 << 20) / sizeof(float);
  Workload workload;
  if (kind == TopologyKind::kRing) {
    workload.buckets = {elements};
    return workload;
  }
  for (int64_t left = elements; left > 0; left -= kBucketElements) {
    workload.buckets.push_back(std::min(left, kBucketElements));
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
  // Relative errors count: each row is divided by what was measured.
  double bb = 0, bm = 0, mm = 0, b1 = 0, m1 = 0;
  for (const MeasuredExchange& exchange : measured) {
    if (exchange.cpu_seconds <= 0) continue;
    const Traffic traffic = TrafficOf(exchange, hardware->shards);
    const double b = traffic.bytes / exchange.cpu_seconds;
    const double m = traffic.messages / exchange.cpu_seconds;
    bb += b * b;
    bm += b * m;
    mm += m * m;
    b1 += b;
    m1 += m;
  }
  const double determinant = bb * mm - bm * bm;
  if (bb == 0 || determinant <= 1e-9 * bb * mm) return;
  double byte = (b1 * mm - m1 * bm) / determinant;
  double message = (bb * m1 - bm * b1) / determinant;
  if (message < 0) {
    message = 0;
    byte = b1 / bb;
  } else if (byte < 0) {
    byte = 0;
    message = m1 / mm;
  }
  hardware->shared_cores = cores;
  hardware->cpu_s_per_byte = byte;
  hardware->cpu_s_per_message = message;
}

}  // namespace psring
