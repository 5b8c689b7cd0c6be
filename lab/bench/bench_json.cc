#include "lab/bench/bench_json.h"

#include <nlohmann/json.hpp>

#include "lab/host/statistics.h"
#include "lab/page/report_parts.h"

namespace psring {
namespace {

using nlohmann::json;

json MeasurementJson(const SweepPoint& point, const Measurement& m) {
  return {
      {"contender", m.contender},
      {"verified", true},
      {"iterations", m.seconds.size()},
      {"median_s", MedianSeconds(m)},
      {"p99_s", Percentile(m.seconds, 99)},
      {"algbw_bytes_per_s", AlgorithmBandwidth(point, m)},
      {"busbw_bytes_per_s", BusBandwidth(point, m)},
      {"times_limit", TimesLimit(point, m)},
      {"cpu_s_per_gb", CpuSecondsPerGb(point, m)},
      {"times_psring", TimesPsring(point, m)},
      {"cpu_s", m.cpu_seconds},
      {"server_peak_bytes", m.server_peak_bytes},
      {"seconds", m.seconds},
  };
}

// Null where nothing was predicted.
json OnHosts(const SweepPoint& point, double value) {
  return point.predicted_seconds > 0 ? json(value) : json();
}

json PointJson(const SweepPoint& point) {
  json measurements = json::array();
  for (const Measurement& m : point.measurements) {
    measurements.push_back(MeasurementJson(point, m));
  }
  return {
      {"operation", point.operation},
      {"ranks", point.ranks},
      {"servers", point.servers},
      {"size_bytes", point.size_bytes},
      {"link_load", point.link_load},
      {"limit_s", point.limit_seconds},
      {"predicted_s", OnHosts(point, point.predicted_seconds)},
      {"prediction_error", OnHosts(point, PredictionError(point))},
      {"copy_seconds", point.copy_seconds},
      {"measurements", std::move(measurements)},
  };
}

json LinkJson(const LinkStream& link) {
  return {
      {"from", link.from},
      {"to", link.to},
      {"verified", true},
      {"median_bits_per_s", LinkRate(link)},
      {"p1_bits_per_s", LinkRatePercentile(link, 1)},
      {"p99_bits_per_s", LinkRatePercentile(link, 99)},
      {"seconds", link.seconds},
      {"bytes", link.bytes},
      {"round_trips", link.round_trips},
  };
}

json TrainingJson(const Training& training) {
  return {
      {"model", training.model},
      {"contender", training.contender},
      {"workers", training.workers},
      {"median_images_per_s", Median(training.images_per_second)},
      {"images_per_s", training.images_per_second},
      {"precision", training.precision},
      {"peak_memory_bytes", training.peak_memory_bytes},
      {"accuracy", training.accuracy.has_value() ? json(*training.accuracy)
                                                 : json(nullptr)},
  };
}

template <typename T>
json ListJson(const std::vector<T>& values, json (*to_json)(const T&)) {
  json list = json::array();
  for (const T& value : values) list.push_back(to_json(value));
  return list;
}

json PeerJson(const PeerFinding& peer) {
  return {{"name", peer.name},
          {"found", peer.found},
          {"detail", peer.detail},
          {"failure", peer.failure}};
}

}  // namespace

json ToJson(const BenchResults& results) {
  return {
      {"command", results.command},
      {"created", results.created},
      {"commit", results.commit},
      {"flags", results.flags},
      {"machine", MachineJson(results.machine)},
      {"copy_kind", results.copy_kind},
      {"hot", results.hot},
      {"hosts", results.hosts},
      {"link_bits_per_s", results.link_bits_per_s},
      {"peers", ListJson(results.peers, PeerJson)},
      {"links", ListJson(results.links, LinkJson)},
      {"points", ListJson(results.points, PointJson)},
      {"trainings", ListJson(results.trainings, TrainingJson)},
      {"cut_short", results.cut_short},
      {"other_cores",
       results.other_cores ? json(*results.other_cores) : json()},
  };
}

std::string RenderBenchJson(const BenchResults& results) {
  return DumpJson(ToJson(results), 1) + "\n";
}

}  // namespace psring
