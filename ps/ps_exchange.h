// The worker's side of the parameter server. Lives on the trainer's thread,
// which owns its sockets: one DEALER a shard. ZeroMQ's own thread moves the
// bytes while backward runs. A shard on this host reads the gradients and
// writes the parameters in this worker's arena instead; see host_workers.h.
//
// By message a worker is at most a few pieces ahead of its answers: left alone,
// TCP would let one worker's pushes overtake another's, all answers would wait
// for the last, and the link would be idle in one direction, then in the other.
// Answers are only looked at in Submit and Finish, so what the window holds
// back while backward runs goes out with the next bucket.
//
// Compressed gradients (common/exchange/compressed_exchange.h) are pushed
// encoded; parameters return as float32.
#ifndef PSRING_PS_PS_EXCHANGE_H_
#define PSRING_PS_PS_EXCHANGE_H_

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/cluster/member.h"
#include "common/exchange/gradient_exchange.h"
#include "common/net/cancellation.h"
#include "common/net/doorbell.h"
#include "common/net/frame.h"
#include "common/net/socket.h"
#include "common/optim/compression.h"
#include "common/trace/timeline.h"
#include "ps/shard_map.h"

namespace psring {

class PsExchange : public GradientExchange {
 public:
  // Connects to every shard of `job`, which is the model's. All references
  // outlive the exchange; `model` outlives `context` too, as gradients are sent
  // from where they lie. `track`: this thread's, or null.
  static absl::StatusOr<std::unique_ptr<PsExchange>> Create(
      Context& context, const Cancellation& cancellation, Member& member,
      const proto::Welcome& job, FlatModel& model, Track* track = nullptr);

  using GradientExchange::Join;
  // `arrived` is told of a shard's range when the shard has answered for all of
  // it.
  absl::Status Join(std::vector<FlatBuffer> slots, ParametersArrived arrived,
                    Time deadline) override;
  absl::Status Submit(int bucket) override;
  absl::Status Finish(Time deadline) override;
  int64_t step() const override { return step_; }
  absl::Status Synchronise(Time deadline) override;
  absl::StatusOr<proto::SavedState> SaveState(const std::string& directory,
                                              Time deadline) override;
  absl::Status CheckSaveDirectory(const std::string& directory,
                                  Time deadline) override;
  Traffic traffic() const override;

 private:
  // One shard of a server, as this worker sees it.
  struct ShardPeer {
    ShardPlace place;
    std::unique_ptr<Socket> socket;
    std::vector<Piece> pieces;
    int answers_due = 0;       // of the exchange under way, by message
    std::deque<Piece> unsent;  // submitted, and held back by the window
    // Of a shard on this host that reads our arena, from Join on.
    std::unique_ptr<DoorbellButton> button;
    ShardSignals* signals = nullptr;
    int64_t answers_awaited = 0;  // in the arena, since the start

    int64_t due() const {
      return answers_due + static_cast<int64_t>(unsent.size()) +
             (signals == nullptr
                  ? 0
                  : answers_awaited -
                        signals->answers.load(std::memory_order_acquire));
    }
  };

  // The pieces [begin, end) of a shard that make its part of a bucket.
  struct BucketPart {
    size_t shard = 0;
    size_t begin = 0;
    size_t end = 0;
  };

  PsExchange(const Cancellation& cancellation, Member& member,
             const proto::Welcome& job, FlatModel& model, Track* track)
      : cancellation_(cancellation),
        member_(member),
        job_(job),
        model_(model),
        track_(track),
        parts_of_(model.layout.num_buckets()) {}

  void AddShard(const ShardPlace& place, std::unique_ptr<Socket> socket);

  proto::WireHeader HeaderOf(proto::WireHeader::Kind kind,
                             const Piece& piece) const;
  SpanArgs ArgsOf(const ShardPeer& shard) const;
  absl::Status SendInit(ShardPeer& shard, int slot, const FlatBuffer& values);
  void FindHostShards();
  // Sends gradients that have been submitted, from where they lie or encoded,
  // as far as the window allows.
  absl::Status SendPushes(ShardPeer& shard, int window);
  absl::Status PullAll(const std::string& what, Time deadline);
  absl::Status SendToAll(proto::WireHeader::Kind kind, const std::string& text,
                         Time deadline);
  // Receives until no answer is due; `what` is for the deadline's error.
  absl::Status Await(const std::string& what, Time deadline);
  absl::Status ReceiveFrom(ShardPeer& shard);
  absl::Status OnMessage(ShardPeer& shard, const DataMessage& message);
  absl::Status OnSaved(ShardPeer& shard, const DataMessage& message);
  absl::Status Late(const std::string& what) const;

  const Cancellation& cancellation_;
  Member& member_;
  const proto::Welcome& job_;
  FlatModel& model_;
  std::optional<GradientCodec> codec_;  // none: gradients travel as float32
  Track* const track_;
  std::vector<ShardPeer> shards_;
  std::vector<std::vector<BucketPart>> parts_of_;  // by bucket
  int num_by_message_ = 0;  // shards that share no memory; from Join on
  std::vector<Socket*> sockets_;
  ParametersArrived arrived_;
  // Tells buckets that come one after the other from buckets with computing
  // between them.
  Time last_submit_ = Time::InfinitePast();
  int64_t step_ = 0;          // the step whose gradients are being gathered
  int64_t awaited_step_ = 0;  // of the answers that are due
  int64_t next_step_ = 0;     // the furthest that an answer has told
  int64_t gathers_ = 0;       // names the gathers
  absl::Status refusal_;      // the first of the last question to all
  proto::SavedState saved_;   // of all shards, in the last SaveState
  int64_t gradient_bytes_ = 0;
};

}  // namespace psring

#endif  // PSRING_PS_PS_EXCHANGE_H_
