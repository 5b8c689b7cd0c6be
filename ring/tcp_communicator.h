// A ring over ZeroMQ: an inbox that hears the node before, sockets to the
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
#ifndef PSRING_RING_TCP_COMMUNICATOR_H_
#define PSRING_RING_TCP_COMMUNICATOR_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/layout.h"
#include "common/net/cancellation.h"
#include "common/net/frame.h"
#include "common/net/socket.h"
#include "common/optim/compression.h"
#include "common/trace/timeline.h"
#include "protos/cluster.pb.h"
#include "ring/communicator.h"
#include "ring/local_group.h"
#include "ring/rank_schedule.h"
#include "ring/routes.h"
#include "ring/segment_inbox.h"
#include "ring/slice_sum.h"

namespace psring {

class TcpCommunicator : public Communicator {
 public:
  // Listens on `address` (numeric), port chosen by the system. `context` and
  // `cancellation` outlive it; every buffer that is handed in outlives
  // `context`, as it is sent from where it lies.
  static absl::StatusOr<std::unique_ptr<TcpCommunicator>> Create(
      Context& context, const Cancellation& cancellation,
      const std::string& address);

  ~TcpCommunicator() override;

  const std::string& endpoint() const { return inbox_->socket().endpoint(); }

  // The job is complete; before any collective. `track`: this thread's, or
  // null. `limits`: the same on every rank.
  void Connect(const proto::Welcome& job, Track* track = nullptr,
               const DirectLimits& limits = {});

  // Before the first allreduce: these go through `nodes`, more than one, the
  // same on every rank. `group`: this rank's node, or null where it is alone.
  // Data of an allreduce then has to lie in the group's arenas.
  void UseNodes(std::vector<Node> nodes, std::unique_ptr<LocalGroup> group);

  int rank() const override { return job_.rank(); }
  int size() const override { return job_.workers_size(); }
  absl::Status AllReduce(absl::Span<float> data, float scale,
                         Time deadline) override;
  // The same bits as AllReduce's, of values that `codec` has quantised:
  // elements of one bucket from `begin` on. They travel encoded, their mean as
  // float32.
  absl::Status AllReduceEncoded(const GradientCodec& codec, int64_t begin,
                                absl::Span<float> data, float scale,
                                Time deadline);
  absl::Status AllGather(absl::Span<float> data, Time deadline) override;
  absl::Status Broadcast(absl::Span<float> data, int root,
                         Time deadline) override;

  // Any thread.
  Traffic traffic() const {
    return {bytes_sent_, bytes_received_, gradient_bytes_sent_};
  }
  // Messages that were not ours and were dropped.
  int64_t malformed() const { return inbox_->malformed(); }

 private:
  enum class Kind { kAllReduce, kAllReduceEncoded, kAllGather, kBroadcast };
  // Two collectives of one shape differ in nothing but their data.
  struct Shape {
    Kind kind = Kind::kAllReduce;
    int root = 0;  // of kBroadcast
    int64_t num_elements = 0;

    friend auto operator<=>(const Shape& a, const Shape& b) = default;
  };
  // What all collectives of one shape use.
  struct Plan {
    RankSchedule schedule;
    // Where values come apart: of this rank's slice, or of all.
    std::optional<SliceSum> slice;
    std::optional<BucketSum> whole;
  };
  // One collective under way.
  struct Collective {
    absl::Span<float> data;
    float scale = 1.0f;
    LocalGroup* group = nullptr;           // whose data is read and written too
    const GradientCodec* codec = nullptr;  // of what travels apart; null: none
    int64_t begin = 0;                     // of the data, for the codec
    Time deadline;
    bool comes_back =
        false;  // every rank's slices are overwritten by their sum
    Plan* plan = nullptr;
  };

  TcpCommunicator(Context& context, const Cancellation& cancellation)
      : context_(context), cancellation_(cancellation) {}

  // Makes the plan of a new shape, and connects to the ranks that it sends to.
  absl::StatusOr<Plan*> MakePlan(const Shape& shape);
  std::vector<Route> RoutesOf(const Shape& shape) const;
  AllReduceWay AllReduceWayOf(int64_t num_elements) const {
    return WayOf(static_cast<int>(nodes_.size()), size(), num_elements,
                 limits_);
  }
  absl::Status ConnectTo(int rank);
  // Takes what is said on links over which nothing else is received, and what
  // their connections have to tell.
  void TendLinks();
  void TendBetweenCollectives();

  absl::Status Run(const Shape& shape, Collective c);
  // This rank's or its node's values on a route that starts here.
  absl::Status SendFirst(const Collective& c, int route);
  absl::Status SendPlain(const Collective& c, int route);
  absl::Status SendEncoded(const Collective& c, int route);
  absl::Status SendSegment(const Collective& c, int route, int visit,
                           Range range, Frame payload);
  // Waits for a message of this collective. Does what its visit wants done, if
  // it is the segment that is due there.
  absl::Status Receive(const Collective& c);
  absl::Status OnSegment(const Collective& c, const RankSchedule::Inflow& at,
                         Range range, Frame payload);
  // Values that are summed when the last have come, of this rank's slice or of
  // all. A slice's mean sets out to the others.
  absl::Status OnApart(const Collective& c, RankSchedule::Inflow& at,
                       Range range, DataMessage message);
  // Of EverybodyRoutes: the rounds that have waited for this one set out.
  absl::Status OnRound(const Collective& c, int route, const Frame& values);
  absl::Status SendKnown(const Collective& c, int route);
  // Where the data of `rank`, a member of this node, lies.
  float* DataOf(const Collective& c, int rank) const {
    if (c.group == nullptr) return c.data.data();
    return c.group->data((rank - first_member_ + size()) % size());
  }
  absl::Status Late(const Collective& c) const;

  Context& context_;
  const Cancellation& cancellation_;
  // Its holder uses the sockets and what is between them: a collective, or the
  // tender.
  std::mutex mutex_;
  Cancellation stop_;
  std::thread tender_;
  proto::Welcome job_;
  Track* track_ = nullptr;
  DirectLimits limits_;
  std::vector<Node> nodes_;  // of allreduces
  int first_member_ = 0;     // of this node
  std::unique_ptr<LocalGroup> group_;
  std::unique_ptr<SegmentInbox> inbox_;
  std::vector<std::unique_ptr<Socket>> next_;  // by rank; null: not needed yet
  std::vector<Socket*> sockets_;  // the inbox's, then those of next_
  std::map<Shape, Plan> plans_;
  uint64_t sequence_ = 0;  // of the collective under way
  int untended_ = 0;       // messages that came since TendLinks
  // Read by any thread.
  std::atomic<int64_t> bytes_sent_ = 0;
  std::atomic<int64_t> bytes_received_ = 0;
  std::atomic<int64_t> gradient_bytes_sent_ = 0;
};

}  // namespace psring

#endif  // PSRING_RING_TCP_COMMUNICATOR_H_
