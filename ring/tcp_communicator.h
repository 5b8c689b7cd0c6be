// A ring over ZeroMQ: an inbox that hears the node before, sockets to the
// agents of the next one (routes.h). Without shared memory every rank is a
// node.
//
// A received segment is summed into where it arrived and sent on from there:
// between its first and its last hop no byte is copied.
//
// Compressed values go round no ring: see DirectRoutes. Then every rank sends
// for itself, also where several share a host: s of them send s encoded slices
// over its link where the ring sends one partial sum.
#ifndef PSRING_RING_TCP_COMMUNICATOR_H_
#define PSRING_RING_TCP_COMMUNICATOR_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/layout.h"
#include "common/net/cancellation.h"
#include "common/net/frame.h"
#include "common/net/socket.h"
#include "common/optim/compression.h"
#include "common/trace/timeline.h"
#include "protos/cluster.pb.h"
#include "ring/communicator.h"
#include "ring/local_group.h"
#include "ring/routes.h"
#include "ring/segment_inbox.h"

namespace psring {

class TcpCommunicator : public Communicator {
 public:
  // Listens on `address` (numeric), port chosen by the system. `context` and
  // `cancellation` outlive it; every buffer that is handed in outlives
  // `context`, as it is sent from where it lies.
  static absl::StatusOr<std::unique_ptr<TcpCommunicator>> Create(
      Context& context, const Cancellation& cancellation,
      const std::string& address);

  const std::string& endpoint() const { return inbox_->socket().endpoint(); }

  // The job is complete; before any collective. `track`: this thread's, or
  // null.
  void Connect(const proto::Welcome& job, Track* track = nullptr);

  // From now on allreduces go through `nodes`, more than one, the same on every
  // rank. `group`: this rank's node, or null where it is alone. Data of an
  // allreduce then has to lie in the group's arenas.
  void UseNodes(std::vector<Node> nodes, std::unique_ptr<LocalGroup> group);

  int rank() const override { return job_.rank(); }
  int size() const override { return job_.workers_size(); }
  absl::Status AllReduce(absl::Span<float> data, float scale,
                         absl::Time deadline) override;
  // The same bits as AllReduce's, of values that `codec` has quantised:
  // elements of one bucket from `begin` on. They travel encoded, their mean as
  // float32.
  absl::Status AllReduceEncoded(const GradientCodec& codec, int64_t begin,
                                absl::Span<float> data, float scale,
                                absl::Time deadline);
  absl::Status ReduceScatter(absl::Span<float> data, float scale,
                             absl::Time deadline) override;
  absl::Status AllGather(absl::Span<float> data, absl::Time deadline) override;
  absl::Status Broadcast(absl::Span<float> data, int root,
                         absl::Time deadline) override;

  int64_t bytes_sent() const;
  int64_t bytes_received() const { return inbox_->socket().bytes_received(); }
  // Of them, payloads on their way to where they are summed.
  int64_t gradient_bytes_sent() const { return gradient_bytes_; }
  // Messages that were not ours and were dropped.
  int64_t malformed() const { return inbox_->malformed(); }

 private:
  // What is still to come to this rank at one visit of one route: segments, in
  // order.
  struct Inflow {
    std::vector<Range> segments;
    size_t received = 0;
  };
  // What has come of a segment that this rank sums, decoded; by rank.
  struct Contributions {
    std::vector<Frame> values;
    int missing = 0;
  };
  // One collective under way.
  struct Collective {
    absl::Span<float> data;
    float scale = 1.0f;
    std::vector<Route> routes;
    bool grouped = false;  // peers of this node are read and written too
    bool comes_back =
        false;  // every rank's slices are overwritten by their sum
    const GradientCodec* codec = nullptr;  // of encoded routes
    int64_t begin = 0;                     // of the data, for the codec
    absl::Time deadline;
    std::map<std::pair<int, int>, Inflow> inflows;        // by route and visit
    std::map<int64_t, Contributions> contributions = {};  // by first element
    int64_t segments_due = 0;
  };

  TcpCommunicator(Context& context, const Cancellation& cancellation)
      : context_(context), cancellation_(cancellation) {}

  absl::Status RunFlat(RoutePhase phase, absl::Span<float> data, float scale,
                       absl::Time deadline);
  absl::Status Run(Collective c);
  // `rank`, a member of this node, has its data there.
  float* DataOf(const Collective& c, int rank) const;
  absl::Status SendFirst(const Collective& c, int route);
  Frame FirstPayload(const Collective& c, const Visit& visit, Range range);
  Frame EncodedPayload(const Collective& c, Range range);
  absl::Status SendSegment(const Collective& c, int route, int visit,
                           Range range, Frame payload);
  absl::StatusOr<Socket*> SocketTo(int rank);
  // Receives one valid segment and does what its visit wants done.
  absl::Status Receive(Collective& c);
  absl::Status OnSegment(Collective& c, int route, int visit, Range range,
                         Frame payload);
  // A rank's values of a segment that this one sums. When the last have come,
  // the sum begins its way round.
  absl::Status OnContribution(Collective& c, int from, Range range,
                              Frame values);
  void WriteToMembers(const Collective& c, Range range, const void* values);
  // Waits for a message of this collective.
  absl::StatusOr<DataMessage> NextMessage(const Collective& c);
  // The rank whose segments are due; -1: none.
  int Awaited(const Collective& c) const;
  absl::Status Late(const Collective& c) const;

  Context& context_;
  const Cancellation& cancellation_;
  proto::Welcome job_;
  Track* track_ = nullptr;
  std::vector<Node> nodes_;
  std::unique_ptr<LocalGroup> group_;
  std::unique_ptr<SegmentInbox> inbox_;
  std::map<int, std::unique_ptr<Socket>> next_;  // by rank
  uint64_t sequence_ = 0;                        // of the collective under way
  int64_t gradient_bytes_ = 0;
};

}  // namespace psring

#endif  // PSRING_RING_TCP_COMMUNICATOR_H_
