// Whether a GPU computes what the host computes, and how fast it copies.
#ifndef PSRING_GPU_DEVICE_CHECK_H_
#define PSRING_GPU_DEVICE_CHECK_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/net/cancellation.h"
#include "gpu/device.h"

namespace psring {

// Applies three updates of every optimizer to `num_elements` random elements,
// there and on the host. DATA_LOSS names the optimizer and the first element
// that is more than 1 ulp off. Blocks.
absl::Status CheckOptimizers(Device& device, int64_t num_elements,
                             Time deadline, const Cancellation& cancellation);

// Bytes a second between page-locked memory and the GPU, by its clock: medians
// of 20 copies, and of 20 in both directions at once (bytes of both).
struct CopyRates {
  double to_device = 0;
  double to_host = 0;
  double both = 0;
};

// DATA_LOSS when what comes back is not what was sent. Blocks.
absl::StatusOr<CopyRates> MeasureCopies(Device& device, int64_t size_bytes,
                                        Time deadline,
                                        const Cancellation& cancellation);

struct PeerCopy {
  double rate = 0;      // bytes a second
  bool direct = false;  // else through the host's memory
};

// From one GPU's memory to another's, which reach each other from then on if
// they can: the median of 20 copies, by the first one's clock.
absl::StatusOr<PeerCopy> MeasurePeerCopy(Device& from, Device& to,
                                         int64_t size_bytes, Time deadline,
                                         const Cancellation& cancellation);

}  // namespace psring

#endif  // PSRING_GPU_DEVICE_CHECK_H_
