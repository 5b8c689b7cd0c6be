// What a shard says to workers by message. A worker that is gone is the
// coordinator's to notice: nothing here fails. The shard's thread's own.
#ifndef PSRING_PS_SHARD_REPLIES_H_
#define PSRING_PS_SHARD_REPLIES_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/model/layout.h"
#include "common/net/frame.h"
#include "protos/cluster.pb.h"

namespace psring {

class ShardReplies {
 public:
  using Send = std::function<void(DataMessage reply)>;

  // `job`, the server's, outlives this.
  ShardReplies(Send send, const proto::Welcome& job)
      : send_(std::move(send)), job_(job) {}

  // The piece's parameters, as the answer to a push of `step` or to a pull
  // (-1); the worker goes on with `next_step`.
  void Parameters(const std::string& peer, const Piece& piece, int64_t step,
                  int64_t next_step, Frame parameters);
  // The piece's slot-th state of the optimizer, as the answer to a pull.
  void State(const std::string& peer, const Piece& piece, int slot,
             Frame state);
  // Answers to the peer's question of that number.
  void Done(const std::string& peer, uint64_t question,
            const absl::Status& result);
  // In as many messages as it needs, each well below kMaxPayloadBytes.
  void Saved(const std::string& peer, uint64_t question,
             const proto::SavedState& saved);

 private:
  void Answer(const std::string& peer, uint64_t question,
              proto::WireHeader::Kind kind, absl::string_view bytes,
              bool more = false);
  DataMessage To(const std::string& peer, proto::WireHeader::Kind kind,
                 proto::WireHeader::DType dtype) const;
  DataMessage Params(const std::string& peer, const Piece& piece, int64_t step,
                     Frame values) const;

  const Send send_;
  const proto::Welcome& job_;
};

}  // namespace psring

#endif  // PSRING_PS_SHARD_REPLIES_H_
