// The sockets of one rank of a ring of messages: the inbox, in which it hears
// the others, and one to each rank that it sends to. A thread of theirs keeps
// connections alive between collectives.
#ifndef PSRING_RING_RING_SOCKETS_H_
#define PSRING_RING_RING_SOCKETS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/net/cancellation.h"
#include "common/net/frame.h"
#include "common/net/socket.h"
#include "protos/cluster.pb.h"
#include "ring/segment_inbox.h"

namespace psring {

// A communicator's. Only the holder of Use() calls the rest, but for what says
// otherwise.
class RingSockets {
 public:
  // Listens on `address` (numeric), port chosen by the system. References
  // outlive it.
  static absl::StatusOr<std::unique_ptr<RingSockets>> Create(
      Context& context, const Cancellation& cancellation,
      const std::string& address);
  ~RingSockets();

  // Any thread.
  const std::string& endpoint() const { return inbox_->socket().endpoint(); }

  // The job is complete; before any Use.
  void Connect(const proto::Welcome& job);

  // For one collective.
  std::unique_lock<std::mutex> Use() {
    return std::unique_lock<std::mutex>(mutex_);
  }

  // Once is enough; before anything is sent there.
  absl::Status ConnectTo(int rank);
  absl::Status SendTo(int rank, DataMessage message);

  // SegmentInbox::TryNext.
  absl::StatusOr<std::optional<DataMessage>> TryNext(uint64_t sequence);
  // The same after a wait of up to 100 ms; nothing came by then or by
  // `deadline`. Errors: those, a cancelled process, and a peer that refuses
  // this rank's connection.
  absl::StatusOr<std::optional<DataMessage>> Await(uint64_t sequence,
                                                   Time deadline);
  // SegmentInbox::Drop.
  void Drop(const std::string& peer, const absl::Status& why, int proven_rank) {
    inbox_->Drop(peer, why, proven_rank);
  }
  // For one that waits elsewhere: takes what connections have to tell, and says
  // what has come. Errors: a peer that refuses this rank's connection.
  absl::Status KeepAlive();

  // Any thread.
  int64_t bytes_sent() const { return bytes_sent_; }
  int64_t bytes_received() const { return bytes_received_; }

  // SegmentInbox::malformed; between collectives.
  int64_t malformed() const { return inbox_->malformed(); }

 private:
  RingSockets(Context& context, const Cancellation& cancellation)
      : context_(context), cancellation_(cancellation) {}

  // Takes what is said on connections over which nothing else is received.
  // Errors: the first that is refused, with whom it leads to.
  absl::Status Tend();
  void TendBetweenCollectives();

  Context& context_;
  const Cancellation& cancellation_;
  std::mutex mutex_;
  Cancellation stop_;
  std::thread tender_;
  proto::Welcome job_;
  std::unique_ptr<SegmentInbox> inbox_;
  std::vector<std::unique_ptr<Socket>> to_;  // by rank; null: not needed yet
  std::vector<Socket*> all_;                 // the inbox's, then those of to_
  std::vector<int> ranks_;                   // whom those lead to
  int untended_ = 0;                         // messages that came since Tend
  std::atomic<int64_t> bytes_sent_ = 0;
  std::atomic<int64_t> bytes_received_ = 0;
};

}  // namespace psring

#endif  // PSRING_RING_RING_SOCKETS_H_
