// What follows from a gradient, up to its answer: the steps of one shard.
//
// Every piece (layout.h) takes them by itself. Its gate says when a gradient
// counts and when its worker goes on; in a replay gradients reach the gate in
// their recorded turn. What counts updates the piece, with the step's other
// gradients or alone. Who goes on is answered with the new parameters: in its
// arena, or by message.
#ifndef PSRING_PS_SHARD_STEPS_H_
#define PSRING_PS_SHARD_STEPS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/model/layout.h"
#include "common/trace/timeline.h"
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

// Of what is done to a worker's piece, or with worker -1 to all workers'.
SpanArgs ArgsOf(int worker, int64_t step, const Piece& piece);

struct ShardStepsOptions {
  // A worker that holds others up and pushes nothing for longer ends the job.
  absl::Duration step_timeout = absl::Seconds(60);
  // Told the number of each step whose first gradient has come; on the shard's
  // thread. May be empty.
  std::function<void(int64_t step)> on_step = nullptr;
  // The ranks of the workers that have done their part; on the shard's thread.
  // May be empty.
  std::function<std::vector<int>()> workers_left = nullptr;
  // The order of updates is written to one and taken from the other; null: not.
  UpdateLogWriter* record = nullptr;
  Replay* replay = nullptr;
};

// What the steps work with; all of it outlives them.
struct ShardStepsParts {
  const proto::Welcome& job;  // of this server
  const Layout& layout;
  const PieceTable& pieces;
  Shard& shard;
  HostShard& host;
  ShardReplies& replies;
  Track* track = nullptr;  // of the shard's thread; null: no timeline
};

// The shard's thread's own. Nothing here waits. Pieces are named by their index
// in the table, workers by their rank.
class ShardSteps {
 public:
  ShardSteps(const ShardStepsParts& parts, const ShardStepsOptions& options);

  // A worker's gradient of `step` has come; the shard has its first state. One
  // that has come before does not count again. INVALID_ARGUMENT when it is out
  // of turn, ALREADY_EXISTS when a replay holds this worker's last one still:
  // the worker is wrong, and nothing has changed.
  absl::Status OnPush(int piece, int worker, int64_t step, Push push);

  // A worker asks for the parameters as others' updates have left them; the
  // shard has its first state. `peer`: whom to answer. ALREADY_EXISTS as above.
  absl::Status OnPull(int piece, int worker, const std::string& peer);

  // Now and then: nobody waits any more for workers that have done their part,
  // where the policy has workers go on by themselves.
  void ReleaseFromThoseWhoLeft();

  // Not OK once the order of updates could not be written or repeated: the
  // shard has to stop.
  const absl::Status& failure() const { return failure_; }

  // DEADLINE_EXCEEDED names the worker that has held others up for longer than
  // step_timeout and has pushed no piece meanwhile, what it has not sent, and
  // how long ago its last message came (`last_message`, by worker). INTERNAL
  // when nobody is awaited.
  absl::Status CheckDeadlines(Time now,
                              absl::Span<const Time> last_message) const;

  const StalenessStats& staleness() const { return rule_.staleness(); }
  // By worker: gradients of pieces that came after their step had closed.
  const std::vector<int64_t>& late_gradients() const { return late_gradients_; }

 private:
  struct PieceState {
    int index;  // in the table
    Piece piece;
    std::unique_ptr<StepGate> gate;
    std::vector<Push> pushes;  // the last of each worker
    // By worker that the gate keeps waiting: since when it waits for the same
    // push of others.
    std::vector<Time> waiting_since;
    // Since when a replay holds pushes back and has taken none.
    Time held_since = Time::InfiniteFuture();

    Time longest_wait_since() const;  // infinite future: nobody waits
  };

  void TakePull(PieceState& state, int worker, const Push& pull);
  // In a replay, until its turn.
  absl::Status HoldBack(PieceState& state, UpdateTurn turn, Push push);
  absl::Status TakeRecorded(PieceState& state);
  // Others' pushes are awaited from now on.
  static void RestartWaits(PieceState& state);
  void ApplyOne(PieceState& state, int worker, int64_t step);
  void ApplyStep(PieceState& state, const std::vector<int>& workers);
  // The worker gets the parameters, as the answer to its push of `step` or to a
  // pull (-1), and `next_step`: into its arena, where nobody uses those of a
  // bucket until all of its answers are there, or by message. `in_place`: they
  // are in its arena already.
  void Answer(PieceState& state, int worker, const Push& push, int64_t step,
              int64_t next_step, bool in_place);
  std::optional<UpdateTurn> AwaitedOf(const PieceState& state) const;
  // "; it pushes the sum of workers 2, 3", of one that does.
  std::string PushesForOf(int worker) const;

  const ShardStepsParts parts_;
  const ShardStepsOptions options_;
  const proto::JobSpec& spec_;
  const bool barrier_;
  const std::vector<int> gradients_pushed_;  // by worker

  std::vector<PieceState> states_;  // by piece
  UpdateRule rule_;
  std::vector<int64_t> late_gradients_;  // by worker
  std::vector<Time> last_push_;          // by worker, of any piece
  size_t num_left_ = 0;                  // workers, of those who are known
  int64_t step_ = -1;                    // the furthest that has begun
  absl::Status failure_;                 // of recording or replaying
};

}  // namespace psring

#endif  // PSRING_PS_SHARD_STEPS_H_
