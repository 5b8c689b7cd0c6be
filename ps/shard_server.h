// One shard's loop: its socket, the arenas of its host's workers, its clock.
// What workers ask of it: shard_requests.h. Lives on one thread.
#ifndef PSRING_PS_SHARD_SERVER_H_
#define PSRING_PS_SHARD_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/cluster/activity.h"
#include "common/model/layout.h"
#include "common/net/cancellation.h"
#include "common/net/doorbell.h"
#include "common/net/socket.h"
#include "common/optim/compression.h"
#include "common/trace/timeline.h"
#include "protos/cluster.pb.h"
#include "ps/host_workers.h"
#include "ps/piece_table.h"
#include "ps/serving_stats.h"
#include "ps/shard.h"
#include "ps/shard_replies.h"
#include "ps/shard_requests.h"
#include "ps/shard_steps.h"

namespace psring {

struct ShardServerOptions {
  proto::Welcome job;  // of this server
  int shard = 0;       // its place in MapShards
  // By rank, outliving the server; empty: all are served by messages.
  absl::Span<const HostWorker> host_workers;
  // Where these count what they push to the shard; null: they cannot.
  WakeCount* pushes = nullptr;
  ShardStepsOptions steps;
  // Of gradients in messages; null: they are float32.
  const GradientCodec* codec = nullptr;
  Track* track = nullptr;  // of the shard's thread; null: no timeline
  // Told about twice a second; may be null.
  std::function<void(const ServingStats&)> on_stats;
  // The shard's thread's, for heartbeats.
  std::shared_ptr<Activity> activity = std::make_shared<Activity>();
};

class ShardServer {
 public:
  // `socket` is bound, `shard` zeroed; both are this thread's, as is
  // `doorbell`, which the workers of this host ring: they are told here that
  // the shard reads their arenas.
  ShardServer(Socket& socket, Doorbell& doorbell,
              const ShardServerOptions& options, const Layout& layout,
              Shard& shard);

  // Serves until `stop` (returns OK), until a worker does not push in time (the
  // error names it) or until an order of updates can be neither written nor
  // repeated. Nothing that a peer sends is an error: malformed messages are
  // logged and counted, and their sender is ignored from then on.
  absl::Status Run(const Cancellation& stop);

  ServingStats stats() const;
  // As ShardRequests'.
  int64_t malformed() const { return requests_.malformed(); }

 private:
  // Whether there are no more for now.
  absl::StatusOr<bool> HandleMessages();

  ShardSteps& steps() { return requests_.steps(); }

  Socket& socket_;
  Doorbell& doorbell_;
  const ShardServerOptions options_;
  const PieceTable pieces_;
  ShardReplies replies_;
  HostShard host_;
  ShardRequests requests_;  // uses what is above
};

}  // namespace psring

#endif  // PSRING_PS_SHARD_SERVER_H_
