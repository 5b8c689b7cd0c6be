// One shard's loop: its socket, the arenas of its host's workers, its first
// state. What follows from a gradient: shard_steps.h. Lives on one thread.
//
// A piece (layout.h) is the unit of everything: it is pushed, summed, updated
// and answered by itself, so that the first pieces are on their way back while
// the last ones are still computed. A push's answer is the new parameters.
#ifndef PSRING_PS_SHARD_SERVER_H_
#define PSRING_PS_SHARD_SERVER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/cluster/activity.h"
#include "common/model/layout.h"
#include "common/net/cancellation.h"
#include "common/net/doorbell.h"
#include "common/net/frame.h"
#include "common/net/peer_filter.h"
#include "common/net/socket.h"
#include "common/optim/compression.h"
#include "common/trace/timeline.h"
#include "protos/cluster.pb.h"
#include "ps/host_workers.h"
#include "ps/piece_table.h"
#include "ps/push.h"
#include "ps/serving_stats.h"
#include "ps/shard.h"
#include "ps/shard_replies.h"
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
  std::function<void(const ServingTotals&)> on_totals;
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

  const StalenessStats& staleness() const { return steps_.staleness(); }
  // By worker: gradients of pieces that came after their step had closed.
  const std::vector<int64_t>& late_gradients() const {
    return steps_.late_gradients();
  }
  // Messages, and pushes in arenas, for which their sender is ignored.
  int64_t malformed() const { return peers_.malformed() + malformed_pushes_; }

 private:
  ServingTotals Totals() const;
  absl::Status HandleMessages();
  absl::Status Handle(DataMessage message);
  bool OnArenaPush(int worker, int bucket, int64_t step);
  absl::Status OnInit(const DataMessage& message);
  absl::Status OnPull(const DataMessage& message);
  absl::Status OnPush(DataMessage message);
  absl::Status OnProbeDirectory(const DataMessage& message);
  absl::Status OnSave(const DataMessage& message);

  // INVALID_ARGUMENT: not as many as the job has, or one that is no rate.
  absl::Status CheckRates(absl::Span<const double> rates) const;

  bool initialised() const { return missing_init_.empty(); }

  Socket& socket_;
  Doorbell& doorbell_;
  const ShardServerOptions options_;
  const Layout& layout_;
  Shard& shard_;
  const int num_workers_;
  const int num_rates_;  // that every push brings
  const PieceTable pieces_;

  ShardReplies replies_;
  HostShard host_;
  ShardSteps steps_;  // uses what is above
  // (slot, piece) that worker 0 has yet to send before anyone can pull.
  std::set<std::pair<int, int>> missing_init_;
  std::vector<DataMessage> parked_pulls_;
  std::vector<Time> last_message_;  // by worker
  PeerFilter peers_;
  int64_t malformed_pushes_ = 0;  // in arenas
};

}  // namespace psring

#endif  // PSRING_PS_SHARD_SERVER_H_
