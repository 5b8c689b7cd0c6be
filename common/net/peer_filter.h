// Who is heard no more at a socket: peers that have sent what nobody should.
#ifndef PSRING_COMMON_NET_PEER_FILTER_H_
#define PSRING_COMMON_NET_PEER_FILTER_H_

#include <cstdint>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"

namespace psring {

// The socket's thread's own. Nothing here blocks. A peer is named by its
// identity (frame.h); one that connects anew may have another.
class PeerFilter {
 public:
  // `endpoint`: the socket's, for the log.
  explicit PeerFilter(std::string endpoint) : endpoint_(std::move(endpoint)) {}

  bool Hears(const std::string& peer) const { return !dropped_.contains(peer); }

  // From now on `peer` is not heard. Counts the message that was wrong with it,
  // and says in the log who sent it and `why`, which is not OK.
  void Drop(const std::string& peer, const absl::Status& why);

  // Messages for which a peer was dropped.
  int64_t malformed() const { return malformed_; }

 private:
  const std::string endpoint_;
  std::set<std::string> dropped_;
  int64_t malformed_ = 0;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_PEER_FILTER_H_
