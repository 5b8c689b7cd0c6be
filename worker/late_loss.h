// Losses of a GPU, read a step after they were computed: the processor, which
// puts the next step into the GPU's queue meanwhile, waits for none of its own.
#ifndef PSRING_WORKER_LATE_LOSS_H_
#define PSRING_WORKER_LATE_LOSS_H_

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <optional>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/net/cancellation.h"

namespace psring {

struct KnownLoss {
  int64_t step = 0;
  double value = 0;
};

// Lives on the trainer's thread. Throws what libtorch throws.
class LateLoss {
 public:
  // Late on any device but the CPU, unless `late` says.
  LateLoss(at::Device device, const Cancellation& cancellation,
           std::optional<bool> late = std::nullopt)
      : device_(device),
        cancellation_(cancellation),
        late_(late.value_or(!device.is_cpu())) {}

  // Takes the loss of `step`. What is known now: on the CPU this one, else the
  // one before, for which it waits; nothing after the first.
  absl::StatusOr<std::optional<KnownLoss>> Push(int64_t step,
                                                const at::Tensor& loss,
                                                Time deadline);

  // The last one, where it is not known yet. Waits.
  absl::StatusOr<std::optional<KnownLoss>> Flush(Time deadline);

 private:
  struct Pending {
    int64_t step = 0;
    at::Tensor value;  // in host memory, which is page-locked for a GPU
    std::optional<c10::Event> arrived;
  };

  const at::Device device_;
  const Cancellation& cancellation_;
  const bool late_;
  std::optional<Pending> pending_;
};

}  // namespace psring

#endif  // PSRING_WORKER_LATE_LOSS_H_
