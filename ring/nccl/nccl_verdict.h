// Whether a communicator has to be aborted, and why: pure.
#ifndef PSRING_RING_NCCL_NCCL_VERDICT_H_
#define PSRING_RING_NCCL_NCCL_VERDICT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

// What there is to be seen of it at one moment.
struct NcclView {
  absl::Status cancelled;  // why the process has to stop; it names a lost peer
  absl::Status stream;     // what broke the GPU's stream
  std::string error;       // what NCCL reports, or nothing
  Time error_since;
  // Since when a call of the GPU's driver has not returned; a call can hang
  // behind a kernel that hangs.
  Time asked_since = Time::InfiniteFuture();
  absl::Duration driver_timeout = absl::InfiniteDuration();

  // The oldest collective in flight, or nothing: "allreduce of bucket 3, step
  // 812". Its time runs from when this rank's data was ready and the stream had
  // reached it, or not at all yet (InfiniteFuture).
  std::string collective;
  Time collective_since = Time::InfiniteFuture();
  absl::Duration timeout = absl::InfiniteDuration();
  bool late_elsewhere = false;  // another rank has found it late
};

// OK, or why the communicator has to be aborted. DEADLINE_EXCEEDED, and no
// other code, says that a collective takes too long, which has a culprit that
// is not known here.
//
// NCCL's own error does not say who is gone; the control plane will, a little
// later: it gets `culprit_grace`.
absl::Status JudgeNccl(Time now, const NcclView& view,
                       absl::Duration culprit_grace);

}  // namespace psring

#endif  // PSRING_RING_NCCL_NCCL_VERDICT_H_
