// Whether this host's GPUs compute, copy, reduce and train as they should.
#ifndef PSRING_LAB_BENCH_GPU_CHECK_H_
#define PSRING_LAB_BENCH_GPU_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/net/cancellation.h"
#include "gpu/device.h"
#include "lab/host/arguments.h"

namespace psring {

// The trainings: steps, samples of each worker's step, learning rate. After
// more steps, what rounding changes has grown too large to tell an error from.
inline constexpr int kGpuCheckSteps = 48;
inline constexpr int kGpuCheckBatch = 32;
inline constexpr double kGpuCheckRate = 0.05;

struct GpuCheckOptions {
  int64_t size_bytes = 256'000'000;  // of copies and allreduces
  // That is trained: without dropout, so that CPUs and GPUs compute the same.
  std::string model = "mlp:784-256-10";
  std::string data = "digits:train=2048,test=512";
  int steps = kGpuCheckSteps;
  absl::Duration timeout = absl::Minutes(10);  // of all of it
  Binaries binaries;
};

// Whether the loss of a training of `model` on GPUs is that on CPUs, which add
// in different orders.
bool LossesAgree(const std::string& model, double found, double wanted);

// The most processes that the checks start: one for each GPU, and two for one
// that is alone, unless it takes one process at a time.
int MostRanks(const std::vector<DeviceInfo>& gpus);

// Checks `gpus`, all of this host's, and prints what it finds, line by line.
// Blocks until every process has ended. An error says what is wrong.
absl::Status CheckGpus(const std::vector<DeviceInfo>& gpus,
                       const GpuCheckOptions& options,
                       const Cancellation& cancellation);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_GPU_CHECK_H_
