// An operation over a range of sizes and numbers of ranks, with its peers and
// its limit measured beside it: at each point all take turns, before the next
// point comes, so that what else the machine does falls on all of them alike.
#ifndef PSRING_LAB_BENCH_SWEEP_H_
#define PSRING_LAB_BENCH_SWEEP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lab/bench/contender.h"
#include "lab/bench/results.h"

namespace psring {

struct SweepOptions {
  std::string operation;  // "allreduce" or "pushpull"
  std::vector<int> ranks;
  std::vector<int64_t> sizes;  // in bytes
  int servers = 1;
  int64_t iterations = 20;     // at least, at each point, over all rounds
  int64_t warmup = 3;          // in each round
  int rounds = 2;              // turns of each contender at each point
  bool hot = false;            // MaxExactRuns iterations back to back
  double link_bits_per_s = 0;  // measured; on several hosts
  std::vector<Contender*> peers;
  // Whether to continue without the peer that has failed. Empty: no.
  std::function<bool(const std::string& name, const absl::Status& status)>
      leaves_out;
  // What is measured next, and what was measured, for people who wait.
  std::function<void(const SweepPoint&)> on_start, on_point;
};

// Small sizes get more iterations than large ones: as many as move what
// `iterations` of 10 MB do, but at most 10 times as many.
int64_t IterationsFor(int64_t size_bytes, int64_t iterations);

// An error names the contender and the point.
absl::StatusOr<std::vector<SweepPoint>> RunSweep(const Stage& stage,
                                                 const SweepOptions& options);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_SWEEP_H_
