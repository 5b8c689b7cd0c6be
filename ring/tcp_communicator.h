// A ring over ZeroMQ: a rank hears the node before its own and sends to the
// agents of the next one (routes.h). Without shared memory every rank is a
// node.
//
// A received segment is summed into where it arrived and sent on from there:
// between its first and its last hop no byte is copied.
//
// Small buckets, for which hops cost more than bytes, and compressed values, of
// which there are no partial sums, do not travel around the ring: see WayOf and
// DirectRoutes. Then every rank sends for itself; compressed, that is so where
// several share a host, too: s of them send s encoded slices over its link
// where the ring sends one partial sum.
//
// A step's parameters come back where an allreduce's means would: whoever has
// the mean of a slice updates it first (ReduceAndUpdate).
#ifndef PSRING_RING_TCP_COMMUNICATOR_H_
#define PSRING_RING_TCP_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/layout.h"
#include "common/moving_deadline.h"
#include "common/net/cancellation.h"
#include "common/net/frame.h"
#include "common/net/socket.h"
#include "common/optim/compression.h"
#include "common/trace/timeline.h"
#include "protos/cluster.pb.h"
#include "ring/communicator.h"
#include "ring/local_group.h"
#include "ring/message_plan.h"
#include "ring/rank_schedule.h"
#include "ring/ring_sockets.h"
#include "ring/routes.h"

namespace psring {

class TcpCommunicator : public Communicator {
 public:
  // Listens on `address` (numeric), port chosen by the system. `context` and
  // `cancellation` outlive it; every buffer that is handed in outlives
  // `context`, as it is sent from where it lies.
  static absl::StatusOr<std::unique_ptr<TcpCommunicator>> Create(
      Context& context, const Cancellation& cancellation,
      const std::string& address);

  const std::string& endpoint() const { return sockets_->endpoint(); }

  // The job is complete; before any collective. `track`: this thread's, or
  // null. `limits`: the same on every rank.
  void Connect(const proto::Welcome& job, Track* track = nullptr,
               const DirectLimits& limits = {});

  // Before the first allreduce: these go through `nodes`, more than one, the
  // same on every rank. `group`: this rank's node, or null where it is alone.
  // Data of an allreduce then has to lie in the group's arenas.
  void UseNodes(std::vector<Node> nodes, std::unique_ptr<LocalGroup> group);

  // Keeps where the data of allreduces lies, for as long as it is being sent;
  // otherwise that has to outlive the sockets' Context.
  void KeepMemory(std::shared_ptr<const void> memory) {
    memory_ = std::move(memory);
  }

  int rank() const override { return job_.rank(); }
  int size() const override { return job_.workers_size(); }
  absl::Status AllReduce(absl::Span<float> data, float scale,
                         Time deadline) override;
  // Makes the parameters of a range of a bucket from the mean of its gradients:
  // floats on any address.
  using UpdateSlice = absl::FunctionRef<void(Range range, const void* mean)>;
  // One step of a bucket: an allreduce of which not the means but the new
  // parameters come back. `update` makes them in `parameters`, the bucket's,
  // once for each segment that is this rank's (Owners), on this thread; the
  // others' are copied there. Of what the gradients are then, nobody may make
  // use. In nodes parameters have to lie in the group's arenas, at the same
  // place on every rank.
  absl::Status ReduceAndUpdate(absl::Span<float> gradients, float scale,
                               float* parameters, UpdateSlice update,
                               Time deadline);
  // The same bits, of gradients that `codec` has quantised: elements of the
  // model from `begin` on. They travel encoded, parameters as float32.
  absl::Status ReduceAndUpdateEncoded(const GradientCodec& codec, int64_t begin,
                                      absl::Span<float> gradients, float scale,
                                      float* parameters, UpdateSlice update,
                                      Time deadline);
  // Who updates what of a bucket of so many elements.
  std::vector<OwnedSlice> Owners(int64_t num_elements, bool encoded) const {
    return OwnersOf(ranks_,
                    encoded ? CollectiveKind::kAllReduceEncoded
                            : CollectiveKind::kAllReduce,
                    num_elements);
  }
  absl::Status AllGather(absl::Span<float> data, Time deadline) override;
  absl::Status Broadcast(absl::Span<float> data, int root,
                         Time deadline) override;
  // `to`'s data becomes `from`'s, another rank's; all ranks call it.
  absl::Status Move(absl::Span<float> data, int from, int to, Time deadline);

  // Any thread.
  Traffic traffic() const {
    return {sockets_->bytes_sent(), sockets_->bytes_received(),
            gradient_bytes_sent_};
  }
  // Messages that were not ours and were dropped. Between collectives.
  int64_t malformed() const { return sockets_->malformed(); }

 private:
  // One collective under way.
  struct Collective {
    absl::Span<float> data;
    float scale = 1.0f;
    LocalGroup* group = nullptr;           // whose data is read and written too
    const GradientCodec* codec = nullptr;  // of what travels apart; null: none
    int64_t begin = 0;                     // of the data, for the codec
    // What comes back are these, once updated; null: the sums, into `data`.
    float* parameters = nullptr;
    const UpdateSlice* update = nullptr;
    MovingDeadline deadline;
    bool comes_back = false;  // to every rank: all slices
    MessagePlan* plan = nullptr;
  };

  explicit TcpCommunicator(std::unique_ptr<RingSockets> sockets)
      : sockets_(std::move(sockets)) {}

  // Makes the plan of a new shape, and connects to the ranks that it sends to.
  absl::StatusOr<MessagePlan*> MakePlan(const CollectiveShape& shape);
  absl::Status CheckShared(absl::Span<const float> data) const;
  absl::Status Run(const CollectiveShape& shape, Collective c);
  // This rank's or its node's values on a route that starts here.
  absl::Status SendFirst(const Collective& c, const RankVisit& start);
  absl::Status SendPlain(const Collective& c, const RankVisit& start);
  absl::Status SendEncoded(const Collective& c, const RankVisit& start);
  // To the rank after `visit`.
  absl::Status SendSegment(const Collective& c, const RankVisit& visit,
                           Range range, Frame payload);
  // Waits for a message of this collective. Does what its visit wants done, if
  // it is the segment that is due there.
  absl::Status Receive(const Collective& c);
  absl::Status OnSegment(const Collective& c, const RankVisit& at, Range range,
                         Frame payload);
  // Values that are summed when the last have come, of this rank's slice or of
  // all. A slice's mean sets out to the others.
  absl::Status OnApart(const Collective& c, RankVisit& at, Range range,
                       DataMessage message);
  // Of EverybodyRoutes: the rounds that have waited for this one set out.
  absl::Status OnRound(const Collective& c, int route, const Frame& values);
  absl::Status SendKnown(const Collective& c, const RankVisit& start);
  // The mean of a range is there, and this rank updates it, if the collective
  // updates. On the way to others it becomes what they get.
  void Update(const Collective& c, Range range, const void* mean) const;
  void UpdateOnTheWay(const Collective& c, Range range, Frame& mean) const;
  // Where the data of `rank`, a member of this node, lies.
  float* DataOf(const Collective& c, int rank) const {
    if (c.group == nullptr) return c.data.data();
    return c.group->data((rank - first_member_ + size()) % size());
  }
  // The same of where it gets what comes back.
  float* ResultOf(const Collective& c, int rank) const;
  absl::Status Late(const Collective& c) const;

  const std::unique_ptr<RingSockets> sockets_;
  proto::Welcome job_;
  Track* track_ = nullptr;
  RingRanks ranks_;
  int first_member_ = 0;  // of this node
  std::unique_ptr<LocalGroup> group_;
  std::shared_ptr<const void> memory_;
  std::map<CollectiveShape, MessagePlan> plans_;
  uint64_t sequence_ = 0;                         // of the collective under way
  std::atomic<int64_t> gradient_bytes_sent_ = 0;  // read by any thread
};

}  // namespace psring

#endif  // PSRING_RING_TCP_COMMUNICATOR_H_
