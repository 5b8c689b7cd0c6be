// Holds the predictor against measurements on hosts of namespaces.
#ifndef PSRING_LAB_BENCH_PREDICTION_CHECK_H_
#define PSRING_LAB_BENCH_PREDICTION_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/net/cancellation.h"
#include "lab/host/arguments.h"

namespace psring {

struct PredictionCheckOptions {
  std::vector<double> links;   // rates of all hosts' links, in bits a second
  std::vector<int> hosts;      // with a worker; ascending, 2 among them
  std::vector<int> servers;    // on hosts of their own; ascending
  std::vector<int64_t> sizes;  // of the gradients, in bytes
  int64_t iterations = 6;      // at each point
  std::string out = ".";       // folder of predict-check.json
  Binaries binaries;
};

// At each rate of the links: measures a stream, then the ring and servers, at
// every size and number of hosts; calibrates on the runs of 2 hosts alone;
// prints predicted against measured, and writes predict-check.json. An error
// names who failed and at what.
absl::Status CheckPredictions(const PredictionCheckOptions& options,
                              const Cancellation& cancellation);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_PREDICTION_CHECK_H_
