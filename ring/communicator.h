// Collective operations among N ranks. Every rank makes the same calls in the
// same order with the same sizes. One thread uses it at a time, as the tasks of
// a runner do (common/exchange/serial_runner.h). All calls block, at most until
// their deadline; where that is long as the data is, it moves on with each part
// that comes. An error names the rank that was waited for; after one the
// communicator must not be used.
#ifndef PSRING_RING_COMMUNICATOR_H_
#define PSRING_RING_COMMUNICATOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/clock.h"

namespace psring {

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // data becomes scale * the canonical sum (common/model/reduce.h) of all
  // ranks' data: the same bits on every rank. Any number of elements. (NCCL
  // has an order of its own: see nccl_communicator.h.)
  virtual absl::Status AllReduce(absl::Span<float> data, float scale,
                                 Time deadline) = 0;

  // Every rank brings its slice of data (NearEqualPart); all get all slices.
  virtual absl::Status AllGather(absl::Span<float> data, Time deadline) = 0;

  // data becomes root's data.
  virtual absl::Status Broadcast(absl::Span<float> data, int root,
                                 Time deadline) = 0;

  // Returns when every rank has called it.
  virtual absl::Status Barrier(Time deadline);
};

}  // namespace psring

#endif  // PSRING_RING_COMMUNICATOR_H_
