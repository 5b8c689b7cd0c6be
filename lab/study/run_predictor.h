// Holds the predictor against the runs of `psring compare`.
#ifndef PSRING_LAB_STUDY_RUN_PREDICTOR_H_
#define PSRING_LAB_STUDY_RUN_PREDICTOR_H_

#include <optional>

#include "absl/status/statusor.h"
#include "lab/host/arguments.h"
#include "lab/study/run_result.h"

namespace psring {

// What `psring predict` makes of a finished run: it is told how long each
// worker's steps computed (their distribution), and the rate that the links
// were given, and works out exchange and waiting. On one host nothing is sent;
// sums take as long as a thread needs that reads gradients where they lie.
class RunPredictor {
 public:
  // Measures for 0.2 s how fast this host sums. `worker_flags` go to every
  // worker.
  static absl::StatusOr<RunPredictor> Create(const Args& worker_flags);

  // Seconds of a step; nothing for what is not simulated: ways that are not
  // synchronous, compression, links of several rates, GPUs, and worker flags
  // that change the exchange.
  std::optional<double> StepSeconds(const RunResult& run) const;

 private:
  RunPredictor() = default;

  bool exchange_as_by_default_ = true;
  double update_bytes_per_s_ = 0;
};

}  // namespace psring

#endif  // PSRING_LAB_STUDY_RUN_PREDICTOR_H_
