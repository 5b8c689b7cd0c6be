// What workers ask of a shard, by message or in their arenas: its first state,
// its parameters, an update with their gradients, a checkpoint. What is wrong
// with it costs its sender, and nobody else. What follows from a gradient:
// shard_steps.h.
//
// A piece (layout.h) is the unit of everything: it is pushed, summed, updated
// and answered by itself, so that the first pieces are on their way back while
// the last ones are still computed. A push's answer is the new parameters.
#ifndef PSRING_PS_SHARD_REQUESTS_H_
#define PSRING_PS_SHARD_REQUESTS_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/net/frame.h"
#include "common/net/peer_filter.h"
#include "common/optim/compression.h"
#include "ps/shard_steps.h"

namespace psring {

// The shard's thread's own. Nothing here waits for a peer.
class ShardRequests {
 public:
  // `shard` of the parts is zeroed. `codec`: of gradients in messages; null:
  // they are float32. `endpoint`: where messages come in, for the log.
  ShardRequests(const ShardStepsParts& parts, const ShardStepsOptions& options,
                const GradientCodec* codec, std::string endpoint);

  // A message has come in, to be read by ParseData. Of malformed ones the first
  // is logged and counted; their sender is ignored from then on.
  void OnMessage(Frames frames);

  // A worker of this host has pushed its gradients of a bucket. False: it is
  // wrong, which is logged and counted, and to be ignored from then on.
  bool OnArenaPush(int worker, int bucket, int64_t step);

  // By worker: when it was heard last.
  absl::Span<const Time> last_message() const { return last_message_; }
  // Messages, and pushes in arenas, for which their sender is ignored.
  int64_t malformed() const { return peers_.malformed() + malformed_pushes_; }

  ShardSteps& steps() { return steps_; }
  const ShardSteps& steps() const { return steps_; }

 private:
  absl::Status Handle(DataMessage message);
  absl::Status OnInit(const DataMessage& message);
  absl::Status OnPull(const DataMessage& message);
  absl::Status OnPullState(int piece, const DataMessage& message);
  absl::Status OnPush(DataMessage message);
  absl::Status OnProbeDirectory(const DataMessage& message);
  absl::Status OnSave(const DataMessage& message);

  bool initialised() const { return missing_init_.empty(); }
  bool initialised(int piece) const;

  const ShardStepsParts parts_;
  const GradientCodec* const codec_;
  const int num_rates_;  // that every push brings

  ShardSteps steps_;
  // (piece, slot) that worker 0 has yet to send before anyone can pull it.
  std::set<std::pair<int, int>> missing_init_;
  // Until then: (piece, worker) that has been pulled, and whom to answer.
  std::map<std::pair<int, int>, std::string> parked_pulls_;
  std::vector<Time> last_message_;  // by worker
  PeerFilter peers_;
  int64_t malformed_pushes_ = 0;  // in arenas
};

}  // namespace psring

#endif  // PSRING_PS_SHARD_REQUESTS_H_
