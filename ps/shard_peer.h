// A shard, as one worker sees it: what the worker has asked of it, piece by
// piece, and what has been answered. By message, or where both share this
// host's memory through the worker's arena; see host_workers.h. The trainer's
// thread's own.
//
// By message a worker is at most a few pieces ahead of its answers: left alone,
// TCP would let one worker's pushes overtake another's, all answers would wait
// for the last, and the link would be idle in one direction, then in the other.
// And a server would hold, for each worker, all answers that its link has not
// carried yet.
//
// Answers are counted by the piece that they name: one that comes twice counts
// once, and hides none that is missing.
#ifndef PSRING_PS_SHARD_PEER_H_
#define PSRING_PS_SHARD_PEER_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/flat_model.h"
#include "common/net/doorbell.h"
#include "common/net/frame.h"
#include "common/net/socket.h"
#include "common/optim/compression.h"
#include "common/trace/timeline.h"
#include "ps/piece_table.h"
#include "ps/shard_map.h"

namespace psring {

class ShardPeer {
 public:
  // The worker, the same to all of its shards; what it refers to outlives them.
  struct Worker {
    const proto::Welcome& job;
    FlatModel& model;
    const GradientCodec* codec;  // null: gradients travel as float32
    Track* track;                // may be null
  };

  ShardPeer(const Worker& worker, const ShardPlace& place,
            std::unique_ptr<Socket> socket);

  const ShardPlace& place() const { return place_; }
  const Socket& socket() const { return *socket_; }
  Socket& socket() { return *socket_; }
  // Of which the shard has a part.
  std::vector<int> buckets() const { return pieces_.buckets(); }

  // From now on gradients and answers pass through the arena: the shard's
  // `signals` there, and its count of `pushes`, which rings `button`.
  void UseArena(ShardSignals& signals, WakeCount& pushes,
                std::unique_ptr<DoorbellButton> button);

  // Sends the first values of the parameters (slot 0) and the optimizer's
  // state, of the next pieces, until many messages have not arrived: they are
  // copies. `state` is the same in every call.
  absl::Status SendInit(absl::Span<const FlatBuffer* const> state);
  // Pieces whose first values have not been sent.
  int first_values_left() const { return pieces_.size() - next_init_; }
  // All parameters (slot 0), or that state of the optimizer, as they are, shall
  // be asked for, to lie at `into`, a flat model. By message, and they wait for
  // SendReady.
  void Pull(int slot, float* into);
  // Asks what is answered by SAVED or DONE; see reply().
  absl::Status Ask(proto::WireHeader::Kind kind, const std::string& text);

  // The gradients of `bucket`, of which the shard has a part, are ready, and
  // its arena says so. By message they wait for SendReady.
  void Push(int bucket, int64_t step);
  // Sends gradients that are ready, from where they lie or encoded, or asks for
  // parameters, until `window` answers are due.
  absl::Status SendReady(int window);

  // Takes what has come, or a part of it where that is much. Errors name the
  // server.
  absl::Status Receive();

  // Answers that are missing; below 0 where an arena holds too many.
  int64_t due() const;
  // Pieces of that bucket that messages have yet to bring.
  int due_by_message(int bucket) const { return due_of_bucket_[bucket]; }
  // Pieces of that bucket of which the arena holds the answers; 0 by message.
  int pieces_in_arena(int bucket) const {
    return signals_ == nullptr ? 0 : num_pieces(bucket);
  }
  // Whether one of them comes by message.
  bool awaits_message() const {
    return num_awaited_ > 0 || !unsent_.empty() || reply_awaited_;
  }
  // Since the start, through the arena, whether they have come or not.
  int64_t answers_awaited() const { return answers_awaited_; }
  // The furthest step that an answer has told.
  int64_t next_step() const;
  // Of the last question that has been answered: what was saved, if anything,
  // or a refusal that names the server.
  const absl::StatusOr<proto::SavedState>& reply() const { return reply_; }
  // Of the gradients that messages have carried.
  int64_t gradient_bytes() const { return gradient_bytes_; }

 private:
  std::string Name() const;
  SpanArgs Args() const;
  int num_pieces(int bucket) const {
    return static_cast<int>(pieces_.of_bucket(bucket).size());
  }
  proto::WireHeader HeaderOf(proto::WireHeader::Kind kind,
                             const Piece& piece) const;
  absl::Status SendPull(const Piece& piece);
  absl::Status SendPush(const Piece& piece);
  absl::Status OnMessage(const DataMessage& message);
  absl::Status OnParameters(const DataMessage& message);
  absl::Status OnReply(const DataMessage& message);

  const Worker worker_;
  const ShardPlace place_;
  const std::unique_ptr<Socket> socket_;
  const PieceTable pieces_;

  // By message.
  int next_init_ = 0;          // the piece whose first values go next
  std::vector<bool> awaited_;  // by piece: sent and not answered
  int num_awaited_ = 0;        // of them
  // By bucket: pieces that wait to be sent, or have not been answered.
  std::vector<int> due_of_bucket_;
  int64_t awaited_step_ = -1;  // whose answers they are; -1: of pulls
  int awaited_slot_ = 0;       // what they hold, and where that lies here
  float* awaited_values_ = nullptr;
  int64_t last_step_ = -1;  // that was pushed
  std::deque<int> unsent_;  // pieces that are ready, or to be pulled
  uint64_t num_questions_ = 0;
  bool reply_awaited_ = false;  // to the last one
  absl::StatusOr<proto::SavedState> reply_ = proto::SavedState();
  int64_t next_step_ = 0;
  int64_t gradient_bytes_ = 0;

  // Through the arena.
  ShardSignals* signals_ = nullptr;  // null: not
  WakeCount* pushes_ = nullptr;
  std::unique_ptr<DoorbellButton> button_;
  int64_t answers_awaited_ = 0;  // since the start
};

}  // namespace psring

#endif  // PSRING_PS_SHARD_PEER_H_
