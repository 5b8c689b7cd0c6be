// One shard's loop: its socket, its gate, its replies. Lives on one thread.
//
// A piece (layout.h) is the unit of everything: it is pushed, summed, updated
// and answered by itself, so that the first pieces are on their way back while
// the last ones are still computed. A push's answer is the new parameters.
#ifndef PSRING_PS_SHARD_SERVER_H_
#define PSRING_PS_SHARD_SERVER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/model/compression.h"
#include "common/model/layout.h"
#include "common/net/cancellation.h"
#include "common/net/doorbell.h"
#include "common/net/frame.h"
#include "common/net/peer_filter.h"
#include "common/net/socket.h"
#include "common/timeline.h"
#include "protos/cluster.pb.h"
#include "ps/host_workers.h"
#include "ps/piece_table.h"
#include "ps/push.h"
#include "ps/replay.h"
#include "ps/shard.h"
#include "ps/shard_replies.h"
#include "ps/step_gate.h"
#include "ps/update_log.h"
#include "ps/update_rule.h"

namespace psring {

struct ShardServerOptions {
  proto::Welcome job;  // of this server
  int shard = 0;       // its place in MapShards
  // By rank, outliving the server; empty: all are served by messages.
  absl::Span<const HostWorker> host_workers;
  // A worker that holds others up for longer ends the job.
  absl::Duration step_timeout = absl::Seconds(60);
  // Told the number of each step whose first gradient has come; on the shard's
  // thread. May be empty.
  std::function<void(int64_t step)> on_step = nullptr;
  // The order of updates is written to one and taken from the other; null: not.
  UpdateLogWriter* record = nullptr;
  Replay* replay = nullptr;
  // Of gradients in messages; null: they are float32.
  const GradientCodec* codec = nullptr;
  Track* track = nullptr;  // of the shard's thread; null: no timeline
};

class ShardServer {
 public:
  // `socket` is bound, `shard` zeroed; both are this thread's, as is
  // `doorbell`, which the workers of this host ring.
  ShardServer(Socket& socket, Doorbell& doorbell,
              const ShardServerOptions& options, const Layout& layout,
              Shard& shard);

  // Serves until `stop` (returns OK), until a worker does not push in time (the
  // error names it) or until an order of updates can be neither written nor
  // repeated. Nothing that a peer sends is an error: malformed
  // messages are logged and counted, and their sender is heard no more.
  absl::Status Run(const Cancellation& stop);

  const StalenessStats& staleness() const { return rule_.staleness(); }
  // By worker: gradients of pieces that came after their step had closed.
  const std::vector<int64_t>& late_gradients() const { return late_gradients_; }
  // Messages, and pushes in arenas, whose sender is heard no more.
  int64_t malformed() const { return peers_.malformed() + malformed_pushes_; }

 private:
  struct PieceState {
    int index;  // in pieces_
    Piece piece;
    StepGate gate;
    std::vector<Push> pushes;  // the last of each worker
    absl::Time waiting_since = absl::InfiniteFuture();
  };

  absl::Status HandleMessages();
  absl::Status Handle(DataMessage message);
  bool OnArenaPush(int worker, int bucket, int64_t step);
  absl::Status OnInit(const DataMessage& message);
  absl::Status OnPull(const DataMessage& message);
  absl::Status OnPush(DataMessage message);
  absl::Status OnProbeDirectory(const DataMessage& message);
  absl::Status OnSave(const DataMessage& message);

  absl::StatusOr<PieceState*> FindPiece(
      const proto::WireHeader& header,
      proto::WireHeader::DType dtype = proto::WireHeader::FLOAT32);
  // A gradient has come: it is taken at once or, in a replay, in its turn.
  absl::Status Accept(PieceState& state, int worker, int64_t step, Push push);
  absl::Status Take(PieceState& state, int worker, int64_t step, Push push);
  void TakePull(PieceState& state, int worker, const std::string& peer);
  // In a replay, until its turn.
  absl::Status HoldBack(PieceState& state, UpdateTurn turn, Push push);
  absl::Status TakeRecorded(PieceState& state);
  void StartWaiting(PieceState& state);
  void ApplyOne(PieceState& state, int worker, int64_t step);
  void ApplyStep(PieceState& state, const std::vector<int>& workers);
  void ReleaseWorkers(PieceState& state);
  void Answer(PieceState& state, int worker, bool in_place);
  void AnswerLate(PieceState& state, int worker);
  void ReplyParameters(PieceState& state, const std::string& peer, int worker,
                       int64_t step);
  bool initialised() const { return missing_init_.empty(); }
  std::optional<UpdateTurn> AwaitedOf(const PieceState& state) const;
  absl::Status CheckDeadlines(absl::Time now) const;

  Socket& socket_;
  Doorbell& doorbell_;
  const ShardServerOptions options_;
  const Layout& layout_;
  Shard& shard_;
  const proto::JobSpec& spec_;
  const int num_workers_;
  const bool bsp_;
  const PieceTable pieces_;

  std::vector<PieceState> states_;  // by piece
  ShardReplies replies_;
  UpdateRule rule_;
  std::optional<HostLink> host_;
  // (slot, piece) that worker 0 has yet to send before anyone can pull.
  std::set<std::pair<int, int>> missing_init_;
  std::vector<DataMessage> parked_pulls_;
  std::vector<int64_t> late_gradients_;   // by worker
  std::vector<absl::Time> last_message_;  // by worker
  PeerFilter peers_;
  int64_t malformed_pushes_ = 0;  // in arenas
  int64_t step_ = -1;             // the furthest that has begun
  absl::Status failure_;          // of recording or replaying
};

}  // namespace psring

#endif  // PSRING_PS_SHARD_SERVER_H_
