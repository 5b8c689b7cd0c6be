// Whom a socket ignores: peers that have sent what nobody should.
#ifndef PSRING_COMMON_NET_PEER_FILTER_H_
#define PSRING_COMMON_NET_PEER_FILTER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace psring {

// The socket's thread's own. Nothing here blocks. A peer is named by its
// identity (frame.h); one that connects anew may have another. However many
// come and go, it remembers some, and its lines in the log become fewer.
class PeerFilter {
 public:
  static constexpr size_t kMaxDropped = 1024;

  // `endpoint`: the socket's, for the log.
  explicit PeerFilter(std::string endpoint) : endpoint_(std::move(endpoint)) {}

  bool Hears(const std::string& peer) const { return !dropped_.contains(peer); }

  // From now on `peer` is not heard, until kMaxDropped others are not either.
  // Counts the message that was wrong with it, and says in the log who sent it
  // (the worker of that rank, where it has proven one: Frame::proven_rank) and
  // `why`, which is not OK: of the first ten, then of the 100th, 1,000th ...
  void Drop(const std::string& peer, const absl::Status& why,
            int proven_rank = -1);

  // Messages for which a peer was dropped.
  int64_t malformed() const { return malformed_; }

 private:
  const std::string endpoint_;
  std::set<std::string> dropped_;
  std::deque<std::string> oldest_;  // of `dropped_`, first
  int64_t malformed_ = 0;
  int64_t told_at_ = 1;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_PEER_FILTER_H_
