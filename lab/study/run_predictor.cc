#include "lab/study/run_predictor.h"

#include <algorithm>
#include <string>

#include "common/model/layout.h"
#include "lab/bench/predicted.h"
#include "lab/host/hosts.h"
#include "lab/host/link_spec.h"
#include "lab/predict/compute.h"
#include "lab/predict/predict_step.h"
#include "lab/predict/update_rate.h"
#include "lab/study/way_spec.h"

namespace psring {
namespace {

// Flags with which a step exchanges something else, or at other times.
constexpr const char* kChangesTheExchange[] = {
    "--local-steps", "--backup-workers", "--clip-norm",   "--same-host",
    "--bucket-mb",   "--ring-backend",   "--comm-threads"};

// Simulated, each with a draw of its own.
constexpr int kSteps = 200;

// More than any link: on one host nothing crosses one.
constexpr double kNoLinkBitsPerS = 1e15;
// How long a thread takes to wake once another one of its host is done.
constexpr double kWakeSeconds = 5e-6;

// Nothing unless all hosts' links are alike.
std::optional<Hardware> HardwareOf(const Point& point, int workers) {
  const std::string& link = ValueOf(point, "link");
  if (link == kNone) {
    Hardware hardware = HardwareOfHosts(kNoLinkBitsPerS);
    hardware.latency_s = kWakeSeconds;
    hardware.burst_s = 0;
    return hardware;
  }
  const auto spec = ParseLink(link, workers);
  if (!spec.ok() || spec->worker >= 0) return std::nullopt;
  return HardwareOfHosts(spec->bits_per_s * Hosts::kPayloadShare);
}

// Nothing where the run does not tell of every worker.
std::optional<std::vector<std::vector<double>>> ComputeTimes(
    const RunResult& run, int workers) {
  std::vector<std::vector<double>> times;
  for (int rank = 0; rank < workers; ++rank) {
    const auto found = run.step_times.find(rank);
    if (found == run.step_times.end() || found->second.busy.empty()) {
      return std::nullopt;
    }
    times.push_back(found->second.busy);
  }
  return times;
}

}  // namespace

absl::StatusOr<RunPredictor> RunPredictor::Create(const Args& worker_flags) {
  const auto rate = MeasureUpdateRate();
  if (!rate.ok()) return rate.status();
  RunPredictor predictor;
  predictor.update_bytes_per_s_ = *rate;
  predictor.exchange_as_by_default_ = std::none_of(
      std::begin(kChangesTheExchange), std::end(kChangesTheExchange),
      [&](const char* name) { return HasFlag(worker_flags, name); });
  return predictor;
}

std::optional<double> RunPredictor::StepSeconds(const RunResult& run) const {
  const WaySpec way = WayOf(run.point);
  // What is simulated sums in the memory of hosts.
  if (run.on_gpu || !exchange_as_by_default_ || !way.plain() ||
      !way.synchronous() || way.ddp ||
      ValueOf(run.point, "compress") != kNone) {
    return std::nullopt;
  }
  Topology topology;
  topology.workers = std::stoi(ValueOf(run.point, "workers"));
  if (way.has_servers()) {
    topology.kind = TopologyKind::kPs;
    topology.server_hosts = std::stoi(ValueOf(run.point, "servers"));
  }
  auto hardware = HardwareOf(run.point, topology.workers);
  auto times = ComputeTimes(run, topology.workers);
  if (!hardware || !times) return std::nullopt;
  hardware->update_bytes_per_s = update_bytes_per_s_;
  Workload workload;
  workload.buckets = CutBuckets(run.num_parameters, kDefaultBucketBytes);
  workload.compute_s = *std::move(times);
  return PredictStep(*hardware, workload, topology, {.steps = kSteps}).step_s;
}

}  // namespace psring
