// The clocks of a benchmark.
#ifndef PSRING_BENCH_STOPWATCH_H_
#define PSRING_BENCH_STOPWATCH_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace psring {

// Of the clock that all processes of this machine share.
double MonotonicSeconds();

// That all threads of this process have computed.
double ProcessCpuSeconds();

// Adds up what lies between Start and Stop. One thread's own.
class Stopwatch {
 public:
  void Start();
  void Stop();

  // As a file of its own, DIRECTORY/rank-RANK.json:
  //   {"rank": 0, "seconds": [one per Start and Stop], "cpu_seconds": of all}
  absl::Status Write(const std::string& directory, int rank) const;

 private:
  double start_ = 0;
  double cpu_start_ = 0;
  double cpu_seconds_ = 0;
  std::vector<double> seconds_;
};

}  // namespace psring

#endif  // PSRING_BENCH_STOPWATCH_H_
