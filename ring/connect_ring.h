// Makes the exchange of a ring on the hosts' processors, once its job is
// complete.
#ifndef PSRING_RING_CONNECT_RING_H_
#define PSRING_RING_CONNECT_RING_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/model/flat_model.h"
#include "common/trace/timeline.h"
#include "protos/cluster.pb.h"
#include "ring/ring_exchange.h"
#include "ring/ring_listener.h"

namespace psring {

struct RingOptions {
  // Threads that share a rank's part of a sum in shared memory; 0: this host's
  // cores, shared by its ranks, at most 4.
  int comm_threads = 0;
};

// All ranks call it. Blocks until all know who shares memory with whom, at most
// for `step_timeout`: how long one collective may take, also later. `flat`, and
// what the listener was made of, outlive the exchange. `track`: of whichever
// thread runs collectives, or null.
absl::StatusOr<std::unique_ptr<RingExchange>> ConnectRing(
    std::unique_ptr<RingListener> listener, const proto::Welcome& job,
    FlatModel& flat, const RingOptions& options, absl::Duration step_timeout,
    Track* track = nullptr);

}  // namespace psring

#endif  // PSRING_RING_CONNECT_RING_H_
