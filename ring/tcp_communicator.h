// A ring over ZeroMQ: a socket that hears rank-1, a socket to rank+1.
//
// A received segment is summed into where it arrived and sent on from there:
// between its first and its last hop no byte is copied.
#ifndef PSRING_RING_TCP_COMMUNICATOR_H_
#define PSRING_RING_TCP_COMMUNICATOR_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/layout.h"
#include "common/net/cancellation.h"
#include "common/net/frame.h"
#include "common/net/socket.h"
#include "protos/cluster.pb.h"
#include "ring/communicator.h"
#include "ring/segments.h"

namespace psring {

class TcpCommunicator : public Communicator {
 public:
  // Listens on `address` (numeric), port chosen by the system. `context` and
  // `cancellation` outlive it; every buffer that is handed in outlives
  // `context`, as it is sent from where it lies.
  static absl::StatusOr<std::unique_ptr<TcpCommunicator>> Create(
      Context& context, const Cancellation& cancellation,
      const std::string& address);

  const std::string& endpoint() const { return listener_->endpoint(); }

  // Connects to the next worker of the job; before any collective.
  absl::Status Connect(const proto::Welcome& job);

  int rank() const override { return job_.rank(); }
  int size() const override { return job_.workers_size(); }
  absl::Status AllReduce(absl::Span<float> data, float scale,
                         absl::Time deadline) override;
  absl::Status ReduceScatter(absl::Span<float> data, float scale,
                             absl::Time deadline) override;
  absl::Status AllGather(absl::Span<float> data, absl::Time deadline) override;
  absl::Status Broadcast(absl::Span<float> data, int root,
                         absl::Time deadline) override;

  int64_t bytes_sent() const;
  int64_t bytes_received() const;
  // Messages that were not ours and were dropped.
  int64_t malformed() const { return malformed_; }

 private:
  // One collective under way.
  struct Collective {
    absl::Span<float> data;
    float scale = 1.0f;
    bool reduces = false;
    bool gathers = false;
    absl::Time deadline;
    // What is still to come, by stage (a hop of a phase): the segments of that
    // stage's slice in order, and how many have come.
    struct Stage {
      std::vector<Range> segments;
      size_t received = 0;
    };
    std::vector<Stage> stages;
    int64_t segments_due = 0;
  };

  TcpCommunicator(Context& context, const Cancellation& cancellation)
      : context_(context), cancellation_(cancellation) {}

  int num_hops() const { return size() - 1; }
  absl::Status Run(Collective collective);
  std::vector<Range> SegmentsOfSlice(const Collective& c, int slice) const;
  void AddStages(Collective& c, RingPhase phase);
  absl::Status SendFirst(const Collective& c, RingPhase phase);
  absl::Status SendSegment(int stage, Range range, Frame payload);
  absl::Status ReceiveAll(Collective& c);
  // Receives one valid segment and does what its stage wants done.
  absl::Status Receive(Collective& c);
  absl::Status OnSegment(Collective& c, int stage, Range range, Frame payload);
  // A valid message from the previous rank, or nothing: what is not valid is
  // dropped, logged and counted.
  absl::StatusOr<DataMessage> NextMessage(const std::string& what,
                                          absl::Time deadline);
  absl::Status CheckHeader(const proto::WireHeader& header) const;
  void Drop(const std::string& peer, const absl::Status& why);
  absl::Status Late(const std::string& what) const;

  Context& context_;
  const Cancellation& cancellation_;
  proto::Welcome job_;
  std::unique_ptr<Socket> listener_;
  std::unique_ptr<Socket> next_;
  uint64_t sequence_ = 0;  // of the collective under way
  std::set<std::string> dropped_;
  int64_t malformed_ = 0;
};

}  // namespace psring

#endif  // PSRING_RING_TCP_COMMUNICATOR_H_
