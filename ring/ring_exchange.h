// The seam of a ring on the hosts' processors: what the trainer uses, and an
// allreduce for benchmarks. Where all ranks share memory it is a SharedRing,
// elsewhere a MessageRing; connect_ring.h makes it.
#ifndef PSRING_RING_RING_EXCHANGE_H_
#define PSRING_RING_RING_EXCHANGE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/exchange/gradient_exchange.h"

namespace psring {

class RingExchange : public GradientExchange {
 public:
  // One allreduce by itself, between steps; see Communicator. Blocks.
  virtual absl::Status AllReduce(absl::Span<float> data, float scale,
                                 Time deadline) = 0;
};

// An error, with step and bucket in front of its message.
absl::Status AtBucket(int64_t step, int bucket, const absl::Status& error);

}  // namespace psring

#endif  // PSRING_RING_RING_EXCHANGE_H_
