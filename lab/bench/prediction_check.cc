#include "lab/bench/prediction_check.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/host_cores.h"
#include "lab/bench/link_bench.h"
#include "lab/bench/predicted.h"
#include "lab/bench/sweep.h"
#include "lab/host/hosts.h"
#include "lab/host/machine.h"
#include "lab/host/units.h"
#include "lab/page/report_files.h"
#include "lab/page/report_parts.h"
#include "lab/page/text_table.h"
#include "lab/predict/predict_step.h"

namespace psring {
namespace {

constexpr char kCheckJson[] = "predict-check.json";
constexpr int kCalibrationHosts = 2;
constexpr int64_t kLinkWindows = 20;
constexpr double kClose = 0.10;
// Up to which the time of an exchange is mostly its messages'.
constexpr int64_t kSmallBytes = 64'000;

struct Row {
  double link_bits_per_s = 0;  // that was asked for
  MeasuredExchange measured;
  double predicted = 0;

  double error() const { return predicted / measured.seconds - 1; }
  bool calibrates() const {
    return measured.topology.workers == kCalibrationHosts;
  }
};

std::string Percent(double part) {
  return absl::StrFormat("%+.1f%%", part * 100);
}

class Checking {
 public:
  Checking(const PredictionCheckOptions& options,
           const Cancellation& cancellation)
      : options_(options), cancellation_(cancellation) {}

  absl::Status Run() {
    absl::Status status;
    for (const double link : options_.links) {
      status = RunLink(link);
      if (!status.ok()) break;
    }
    if (rows_.empty()) return status;
    Print(status);
    status.Update(WriteReportFile(options_.out, kCheckJson,
                                  DumpJson(Json(status), 1) + "\n"));
    return status;
  }

 private:
  absl::Status RunLink(double link_bits_per_s) {
    const int most_servers = options_.servers.back();
    auto hosts =
        Hosts::Create(options_.hosts.back() + most_servers, link_bits_per_s);
    if (!hosts.ok()) return hosts.status();
    const Stage stage = {.cancellation = cancellation_,
                         .hosts = hosts->get(),
                         .placement = Placement::kSeparate,
                         .ps_binary = options_.binaries.ps,
                         .worker_binary = options_.binaries.worker,
                         .rank_binary = options_.binaries.rank,
                         // The simulators know no cost of encryption.
                         .security = {.insecure = true}};
    const auto links = RunLinks(stage, kCalibrationHosts, kLinkWindows);
    if (!links.ok()) return links.status();
    const double rate = SlowestLink(*links);
    std::vector<Row> rows;
    for (const int n : options_.hosts) {
      if (absl::Status s = Measure(stage, n, rate, link_bits_per_s, &rows);
          !s.ok()) {
        return s;
      }
    }
    const Calibrated hardware = Calibrate(rate, rows);
    for (Row& row : rows) {
      row.predicted = PredictExchange(
          row.measured.topology.kind == TopologyKind::kRing ? hardware.ring
                                                            : hardware.ps,
          row.measured);
      rows_.push_back(row);
    }
    return absl::OkStatus();
  }

  // The ring, and servers of every number.
  absl::Status Measure(const Stage& stage, int hosts, double rate, double link,
                       std::vector<Row>* rows) {
    std::vector<int> servers = {0};
    servers.insert(servers.end(), options_.servers.begin(),
                   options_.servers.end());
    for (const int s : servers) {
      SweepOptions options;
      options.operation = s == 0 ? "allreduce" : "pushpull";
      options.ranks = {hosts};
      options.sizes = options_.sizes;
      options.servers = std::max(s, 1);
      options.iterations = options_.iterations;
      options.warmup = 1;
      options.rounds = 1;
      options.link_bits_per_s = rate;
      const auto points = RunSweep(stage, options);
      if (!points.ok()) return points.status();
      for (const SweepPoint& point : *points) {
        rows->push_back({link, ExchangeOf(point, stage.placement), 0});
        std::cerr << FormatLinkRate(link) << ", "
                  << Describe(rows->back().measured.topology) << ", " << hosts
                  << " hosts, " << FormatSize(point.size_bytes) << ": "
                  << FormatTime(rows->back().measured.seconds) << std::endl;
      }
    }
    return absl::OkStatus();
  }

  // Hops of the ring wake other threads than those of servers.
  struct Calibrated {
    Hardware ring;
    Hardware ps;
  };

  // On the runs of 2 hosts: what a byte costs this machine's cores, what the
  // largest ring got through its links and, where there are small exchanges,
  // what a message costs the cores and how long a hop takes.
  static Calibrated Calibrate(double rate, const std::vector<Row>& rows) {
    Hardware hardware = HardwareOfHosts(rate);
    std::vector<MeasuredExchange> exchanges, small;
    const MeasuredExchange* largest = nullptr;
    for (const Row& row : rows) {
      if (!row.calibrates()) continue;
      exchanges.push_back(row.measured);
      if (row.measured.bytes <= kSmallBytes) small.push_back(row.measured);
      if (row.measured.topology.kind == TopologyKind::kRing &&
          (largest == nullptr || row.measured.bytes > largest->bytes)) {
        largest = &row.measured;
      }
    }
    CalibrateCores(exchanges, HostCores(), &hardware);
    if (largest != nullptr && largest->bytes > kSmallBytes) {
      CalibrateLink(*largest, &hardware);
    }
    Calibrated calibrated = {hardware, hardware};
    if (!small.empty()) {
      CalibrateMessages(small, HostCores(), &calibrated.ring, &calibrated.ps);
    }
    std::cerr << "links: " << FormatLinkRate(rate) << " of a stream, "
              << FormatLinkRate(hardware.link_bytes_per_s * 8)
              << " both ways; cores: "
              << absl::StrFormat("%.2f s/GB, ", hardware.cpu_s_per_byte * 1e9)
              << FormatTime(calibrated.ps.cpu_s_per_message)
              << " a message; a hop: " << FormatTime(calibrated.ring.latency_s)
              << " (ring), " << FormatTime(calibrated.ps.latency_s) << " (ps)"
              << std::endl;
    return calibrated;
  }

  // `measured`: why links are missing, where some are.
  void Print(const absl::Status& measured) const {
    std::vector<std::vector<std::string>> cells = {{"link", "topology", "hosts",
                                                    "size", "measured",
                                                    "predicted", "error"}};
    int close = 0, all = 0;
    double worst = 0;
    for (const Row& row : rows_) {
      cells.push_back(
          {FormatLinkRate(row.link_bits_per_s), Describe(row.measured.topology),
           absl::StrCat(row.measured.topology.workers),
           FormatSize(row.measured.bytes), FormatTime(row.measured.seconds),
           FormatTime(row.predicted), Percent(row.error())});
      if (row.calibrates()) continue;  // no prediction
      ++all;
      close += std::abs(row.error()) <= kClose ? 1 : 0;
      worst = std::max(worst, std::abs(row.error()));
    }
    std::cout << "\n"
              << TextTable(cells) << "\n* " << close << " of " << all
              << " within " << absl::StrFormat("%.0f%%", kClose * 100)
              << ", the worst " << absl::StrFormat("%.1f%%", worst * 100)
              << " off, without the runs on " << kCalibrationHosts
              << " hosts, which calibrated the machine's figures.\n"
              << "* Measured: medians. All hosts share this machine's "
              << HostCores()
              << " cores: what else it does slows them, most of all on fast "
                 "links.\n";
    if (measured.ok()) return;
    std::cout << "* Cut short: the link that was measured and those that were "
                 "to follow are missing. "
              << std::string(measured.message()) << "\n";
  }

  nlohmann::json Json(const absl::Status& measured) const {
    nlohmann::json rows = nlohmann::json::array();
    for (const Row& row : rows_) {
      rows.push_back({
          {"link_bits_per_s", row.link_bits_per_s},
          {"topology", Describe(row.measured.topology)},
          {"hosts", row.measured.topology.workers},
          {"servers", row.measured.topology.num_servers()},
          {"size_bytes", row.measured.bytes},
          {"measured_s", row.measured.seconds},
          {"cpu_s", row.measured.cpu_seconds},
          {"predicted_s", row.predicted},
          {"error", row.error()},
          {"calibrates", row.calibrates()},
      });
    }
    return {{"machine", MachineJson(DescribeMachine())},
            {"cut_short", std::string(measured.message())},
            {"rows", std::move(rows)}};
  }

  const PredictionCheckOptions& options_;
  const Cancellation& cancellation_;
  std::vector<Row> rows_;
};

}  // namespace

absl::Status CheckPredictions(const PredictionCheckOptions& options,
                              const Cancellation& cancellation) {
  if (absl::Status s = CheckReportPath(options.out, {kCheckJson}); !s.ok()) {
    return s;
  }
  return Checking(options, cancellation).Run();
}

}  // namespace psring
