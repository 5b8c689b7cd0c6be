// Where a rank hears the ring: the socket that others send segments to, and
// which of their messages belong to the collective under way.
#ifndef PSRING_RING_SEGMENT_INBOX_H_
#define PSRING_RING_SEGMENT_INBOX_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/frame.h"
#include "common/net/peer_filter.h"
#include "common/net/socket.h"

namespace psring {

// Owned by a communicator; its thread's own, as the socket is.
class SegmentInbox {
 public:
  // Listens on `address` (numeric), port chosen by the system. `context`
  // outlives it.
  static absl::StatusOr<std::unique_ptr<SegmentInbox>> Create(
      Context& context, const std::string& address);

  // The job is complete; messages of others are malformed.
  void JoinJob(uint64_t job_epoch) { job_epoch_ = job_epoch; }

  // The next message of collective `sequence`, if one is there; never blocks.
  // Its header is one of a segment of this job; whether that is due, is its
  // receiver's to check. Sequences never fall from call to call. What comes for
  // a later collective is kept until then; what is malformed is dropped, with
  // its sender. Errors are the socket's.
  absl::StatusOr<std::optional<DataMessage>> TryNext(uint64_t sequence);

  // Logs and counts a message that should not have been sent, and ignores its
  // sender from now on. What is kept already stays.
  void Drop(const std::string& peer, const absl::Status& why, int proven_rank) {
    peers_.Drop(peer, why, proven_rank);
  }

  // To wait on, where TryNext gives nothing.
  Socket& socket() { return *socket_; }

  // Messages that were dropped with their senders.
  int64_t malformed() const { return peers_.malformed(); }

 private:
  explicit SegmentInbox(std::unique_ptr<Socket> socket)
      : socket_(std::move(socket)), peers_(socket_->endpoint()) {}

  const std::unique_ptr<Socket> socket_;
  PeerFilter peers_;
  uint64_t job_epoch_ = 0;
  std::deque<DataMessage> early_;  // in the order in which they came
};

}  // namespace psring

#endif  // PSRING_RING_SEGMENT_INBOX_H_
