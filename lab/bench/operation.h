// What a benchmark measures, seen from one rank. On one thread, in turn:
// Prepare makes new inputs, Run is what is timed, once or several times on what
// the last one left, Verify looks at every element of the result.
#ifndef PSRING_LAB_BENCH_OPERATION_H_
#define PSRING_LAB_BENCH_OPERATION_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lab/bench/rank_job.h"

namespace psring {

class Operation {
 public:
  virtual ~Operation() = default;

  virtual absl::Status Prepare(int64_t iteration) = 0;
  virtual absl::Status Run() = 0;
  // After `runs` of them since Prepare(iteration). DATA_LOSS names the first
  // element that is wrong.
  virtual absl::Status Verify(int64_t iteration, int64_t runs) = 0;
};

// `job`, which outlives the operation, is a ring; its first `num_elements` are
// summed in place and multiplied by `scale`, in one allreduce. Several runs
// have a scale of 1, and are at most MaxExactRuns.
std::unique_ptr<Operation> MakeAllReduce(RankJob& job, int64_t num_elements,
                                         float scale);

// The same in the memory of a GPU, by NCCL: rank r takes this host's GPU r,
// modulo their number. UNIMPLEMENTED and UNAVAILABLE as OpenCudaDevice.
absl::StatusOr<std::unique_ptr<Operation>> MakeGpuAllReduce(
    RankJob& job, Cancellation& cancellation, int64_t num_elements,
    float scale);

// One step through parameter servers: push all buckets, let them be summed and
// the optimizer applied, pull all parameters. Blocks for the job's first
// parameters.
absl::StatusOr<std::unique_ptr<Operation>> MakePushPull(
    RankJob& job, const proto::OptimizerSettings& optimizer);

// A streaming copy of `num_elements` in every rank at once.
absl::StatusOr<std::unique_ptr<Operation>> MakeCopy(int64_t num_elements);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_OPERATION_H_
