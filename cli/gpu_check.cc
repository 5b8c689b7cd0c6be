#include "cli/gpu_check.h"

#include <iostream>
#include <string>

#include "absl/time/time.h"
#include "cli/command.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "gpu/device.h"
#include "lab/bench/gpu_check.h"
#include "lab/host/units.h"

namespace psring {
namespace {

constexpr char kName[] = "psring gpu-check";

constexpr char kDescription[] =
    "Checks this host's GPUs: devices, driver and NCCL, the results of their "
    "kernels, copies to and from them, allreduces of 1 to all of them, and "
    "short trainings in both topologies against the same on CPUs. Exits with 3 "
    "when there is no GPU.";
constexpr char kExample[] = "Example: psring gpu-check --size=256MB";

}  // namespace

int GpuCheck(const Args& args) {
  CommandLine line(kDescription, kName);
  GpuCheckOptions options;
  std::string size = "256MB";
  double timeout_s = absl::ToDoubleSeconds(options.timeout);
  line.Add("--size", size, "Size of copies and allreduces");
  line.Add("--model", options.model, "Model to train");
  line.Add("--data", options.data, "Data to train it on");
  line.Add("--steps", options.steps,
           "Steps of each training; after many more, rounding alone makes "
           "GPUs differ")
      .Range(1, 100000);
  line.Add("--timeout", timeout_s, "Seconds for the whole check")
      .Range(1.0, 1e6);
  AddBinaryFlags(line, options.binaries);
  line.Footer(kExample);
  if (auto code = line.Parse(args)) return *code;
  const auto size_bytes = ParseSize(size);
  if (!size_bytes.ok()) {
    const absl::Status s = OfFlag("--size", size_bytes.status());
    return line.UsageError(std::string(s.message()));
  }
  options.size_bytes = *size_bytes;
  options.timeout = absl::Seconds(timeout_s);
  const auto gpus = ListCudaDevices();
  if (!gpus.ok()) return Fail(kName, gpus.status(), kExitNoGpu);
  Cancellation cancellation;
  SignalWatcher signals(cancellation);
  const absl::Status status = CheckGpus(*gpus, options, cancellation);
  if (status.ok()) {
    std::cout << "all is well" << std::endl;
    return 0;
  }
  return signals.received() != 0 ? 128 + signals.received()
                                 : Fail(kName, status);
}

}  // namespace psring
