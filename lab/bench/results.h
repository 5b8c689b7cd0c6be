// What `psring bench` has measured.
#ifndef PSRING_LAB_BENCH_RESULTS_H_
#define PSRING_LAB_BENCH_RESULTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lab/bench/peers.h"
#include "lab/host/machine.h"

namespace psring {

// One contender's times at one point. Every iteration's result was verified, or
// there would be no measurement.
struct Measurement {
  std::string contender;          // as Contender::name
  std::vector<double> seconds;    // of each iteration, the slowest rank's
  double cpu_seconds = 0;         // of all processes, in all iterations
  int64_t server_peak_bytes = 0;  // of the server that held most; 0: none
};

// One operation of so many ranks on so many bytes: measured side by side.
struct SweepPoint {
  std::string operation;  // "allreduce", "pushpull"
  int ranks = 0;
  int servers = 0;  // pushpull only
  int64_t size_bytes = 0;
  double link_load = 0;  // how often size_bytes goes through the busiest link
  double limit_seconds = 0;
  double predicted_seconds = 0;      // of psring; 0: not on several hosts
  std::vector<double> copy_seconds;  // that the limit stems from; on one host
  std::vector<Measurement> measurements;  // psring's is the first
};

// A stream from one rank's host to another's, window by window.
struct LinkStream {
  int from = 0;
  int to = 0;
  std::vector<double> seconds;
  std::vector<double> bytes;
  std::vector<double> round_trips;  // seconds, of 1 KB there and back
};

struct Training {
  std::string model;
  std::string contender;  // "ring", "ps-bsp", "ddp"
  int workers = 0;
  std::vector<double> images_per_second;  // of all workers, one a repetition
  std::string precision = "fp32";
  // Of the worker that held most: of its GPU, or resident; of all repetitions.
  int64_t peak_memory_bytes = 0;
  // On the test samples, at the end of the last repetition; nothing: not
  // evaluated.
  std::optional<double> accuracy = std::nullopt;
};

struct BenchResults {
  std::string command;
  std::string created;
  std::string commit;
  std::map<std::string, std::string> flags;
  Machine machine;
  std::string copy_kind;       // of the streaming copy
  bool hot = false;            // iterations were back to back
  int hosts = 0;               // 0: all processes shared this host
  double link_bits_per_s = 0;  // that --link asked for
  bool encrypted = false;      // psring's messages; no peer's are
  std::vector<PeerFinding> peers;
  std::vector<LinkStream> links;
  std::vector<SweepPoint> points;
  std::vector<Training> trainings;
  // Why it measured less than was asked for; empty: it did not.
  std::string cut_short;
  // Cores that other programs took meanwhile: see lab/host/other_load.h.
  std::optional<double> other_cores;
};

// Derived from a measurement, as nccl-tests defines them: algbw is size / time;
// busbw is what went through the busiest link, whatever the number of ranks.
double MedianSeconds(const Measurement& measurement);
double AlgorithmBandwidth(const SweepPoint& point,
                          const Measurement& measurement);
double BusBandwidth(const SweepPoint& point, const Measurement& measurement);
double TimesLimit(const SweepPoint& point, const Measurement& measurement);
// CPU time of all processes per GB (1e9 bytes) that the ranks handed in.
double CpuSecondsPerGb(const SweepPoint& point, const Measurement& measurement);
// Predicted over psring's median, less 1.
double PredictionError(const SweepPoint& point);
// Its median over psring's at the same point.
double TimesPsring(const SweepPoint& point, const Measurement& measurement);

// The median window's; bits a second.
double LinkRate(const LinkStream& link);
double LinkRatePercentile(const LinkStream& link, double percent);

// The training of that model by that contender, or null.
const Training* FindTraining(const BenchResults& results,
                             const std::string& model,
                             const std::string& precision,
                             const std::string& contender, int workers);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_RESULTS_H_
