// The clocks of a benchmark.
#ifndef PSRING_LAB_BENCH_STOPWATCH_H_
#define PSRING_LAB_BENCH_STOPWATCH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace psring {

// The time of the clock that all processes of this machine share.
double MonotonicSeconds();

// How long all threads of this process have computed.
double ProcessCpuSeconds();

// Collects times. One thread's own.
class Stopwatch {
 public:
  // What is timed begins; it should have at `start`, of MonotonicSeconds.
  void Start(double start);
  void Stop();

  // Writes a file of its own, DIRECTORY/rank-RANK.json:
  //   {"rank": 0, "seconds": [one per Start], "cpu_seconds": [likewise]}
  absl::Status Write(const std::string& directory, int rank) const;

 private:
  double start_ = 0;
  double cpu_start_ = 0;
  std::vector<double> seconds_;
  std::vector<double> cpu_seconds_;
};

}  // namespace psring

#endif  // PSRING_LAB_BENCH_STOPWATCH_H_
