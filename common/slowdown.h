// Faults of speed, injected: how much slower than it is a worker computes.
//
//   worker:2:x3        worker 2 takes 3 times as long
//   random:p=0.1:x5    any worker, in one step of ten, 5 times as long
//
// Several may be given, and then multiply. Which steps are slow is a function
// of (seed, worker, step): the same in every topology and in every run.
#ifndef PSRING_COMMON_SLOWDOWN_H_
#define PSRING_COMMON_SLOWDOWN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace psring {

// Pure.
class Slowdown {
 public:
  // INVALID_ARGUMENT names the text that is neither form.
  static absl::StatusOr<Slowdown> Create(absl::Span<const std::string> texts,
                                         uint64_t seed);

  // INVALID_ARGUMENT names a worker that the job has not.
  absl::Status CheckWorkers(int num_workers) const;

  // At least 1.
  double FactorOf(int worker, int64_t step) const;

 private:
  struct Fault {
    std::string text;
    int worker = -1;  // -1: any
    double probability = 1;
    double factor = 1;
  };

  std::vector<Fault> faults_;
  uint64_t seed_ = 0;
};

}  // namespace psring

#endif  // PSRING_COMMON_SLOWDOWN_H_
