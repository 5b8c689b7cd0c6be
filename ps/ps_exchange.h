// The worker's side of the parameter server. Lives on the trainer's thread, but
// for Submit on a GPU (gpu/staged_exchange.h); one thread at a time owns its
// sockets: one DEALER a shard. ZeroMQ's own thread moves the
// bytes while backward runs. A shard on this host reads the gradients and
// writes the parameters in this worker's arena instead; see host_workers.h.
// What passes between the worker and one shard: shard_peer.h.
//
// Answers are only looked at in Submit and Finish, so what a window holds back
// while backward runs goes out with the next bucket.
//
// Compressed gradients (common/exchange/compressed_exchange.h) are pushed
// encoded; parameters return as float32.
#ifndef PSRING_PS_PS_EXCHANGE_H_
#define PSRING_PS_PS_EXCHANGE_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/cluster/member.h"
#include "common/exchange/gradient_exchange.h"
#include "common/moving_deadline.h"
#include "common/net/cancellation.h"
#include "common/net/socket.h"
#include "common/optim/compression.h"
#include "common/trace/timeline.h"
#include "ps/shard_peer.h"

namespace psring {

// The gather by which the workers of `job` meet for the n-th time.
std::string MeetingName(const proto::Welcome& job, int64_t n);

class PsExchange : public GradientExchange {
 public:
  // Connects to every shard of `job`, which is the model's. All references
  // outlive the exchange. `track`: this thread's, or null.
  static absl::StatusOr<std::unique_ptr<PsExchange>> Create(
      Context& context, const Cancellation& cancellation, Member& member,
      const proto::Welcome& job, FlatModel& model, Track* track = nullptr);

  using GradientExchange::Join;
  // `arrived` is told of a bucket when all shards have answered it.
  absl::Status Join(std::vector<FlatBuffer> slots, ParametersArrived arrived,
                    Time deadline) override;
  absl::Status Submit(int bucket) override;
  absl::Status Finish(Time deadline) override;
  int64_t step() const override { return step_; }
  absl::Status Synchronise(Before next, Time deadline) override;
  absl::StatusOr<proto::SavedState> SaveState(const std::string& directory,
                                              Time deadline) override;
  absl::Status FetchSlots(absl::Span<float* const> slots,
                          Time deadline) override;
  absl::Status CheckSaveDirectory(const std::string& directory,
                                  Time deadline) override;
  Traffic traffic() const override;

 private:
  PsExchange(const Cancellation& cancellation, Member& member,
             const proto::Welcome& job, FlatModel& model, Track* track)
      : cancellation_(cancellation),
        member_(member),
        job_(job),
        model_(model),
        track_(track),
        shards_of_(model.layout.num_buckets()),
        wait_(HasCoreForEach(job)),
        answers_of_bucket_(model.layout.num_buckets()) {}

  void AddShard(const ShardPlace& place, std::unique_ptr<Socket> socket);
  void FindHostShards();
  // With the shards [first, end), which are that server's; with how many.
  int ShareWith(int server, int first, int end);
  // Hands worker 0's first values to the shards.
  absl::Status HandIn(const std::vector<FlatBuffer>& slots,
                      MovingDeadline deadline);
  absl::Status PullAll(const std::string& what, MovingDeadline deadline);
  // What the window has held back, where there was computing meanwhile.
  absl::Status SendEarlierPushes();
  // `what` as Await's.
  absl::Status AskAll(proto::WireHeader::Kind kind, const std::string& text,
                      const std::string& what, Time deadline);
  // Whether all shards have answered this bucket.
  bool HasArrived(int bucket) const;
  // Tells `arrived_` of the buckets of this step that have, each once.
  void TellArrived();
  // Receives until no answer is due: of `step`, or what is no step's (-1).
  // `what` is for the deadline's error. Each answer puts the deadline off.
  absl::Status Await(int64_t step, const std::string& what,
                     MovingDeadline deadline);
  // Takes what has come from that shard; how many of its answers are missing.
  absl::StatusOr<int64_t> TakeFrom(ShardPeer& shard);
  // Blocks until there may be something to take.
  absl::Status Sleep(Time deadline);
  absl::Status Late(const std::string& what) const;

  const Cancellation& cancellation_;
  Member& member_;
  const proto::Welcome& job_;
  FlatModel& model_;
  std::optional<GradientCodec> codec_;  // none: gradients travel as float32
  Track* const track_;
  std::deque<ShardPeer> shards_;
  std::vector<std::vector<ShardPeer*>> shards_of_;  // by bucket
  std::vector<Socket*> sockets_;
  // Of servers on this host: where their shards' pushes are counted.
  std::vector<std::unique_ptr<ShmArena>> server_memory_;
  AwakeWait wait_;            // for answers in the arena
  int64_t answers_seen_ = 0;  // there
  bool listens_ = true;       // has taken what messages have come
  ParametersArrived arrived_;
  // What has been pushed and not told yet.
  std::vector<int> untold_buckets_;
  std::vector<int64_t> answers_of_bucket_;  // awaited in the arena, since start
  bool by_message_ = true;                  // some shard is reached so
  // Tells buckets that come one after the other from buckets with computing
  // between them.
  Time last_submit_ = Time::InfinitePast();
  int64_t step_ = 0;  // the step whose gradients are being gathered
  int64_t meetings_ = 0;
};

}  // namespace psring

#endif  // PSRING_PS_PS_EXCHANGE_H_
