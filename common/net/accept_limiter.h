// How many connections a second a process accepts from strangers. Each costs
// ZeroMQ and the kernel a fifth of a millisecond or so, whatever becomes of it,
// and that is taken from training.
//
// A token bucket for each address (Turner, "New directions in communications",
// 1986): accepting takes a token, and a peer that shows who it is gives it
// back, so that the peers of a job, however many, wait for nothing but each
// other's handshakes. While an address has no tokens, a filter on the listening
// sockets (McCanne and Jacobson, "The BSD packet filter", 1993) makes the
// kernel drop its requests for a connection. Who has asked asks again a second
// later, without an error: peers of the job at that address, too, get in after
// some tries. What is connected stays so, and other addresses notice nothing.
#ifndef PSRING_COMMON_NET_ACCEPT_LIMITER_H_
#define PSRING_COMMON_NET_ACCEPT_LIMITER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/peer_network.h"

namespace psring {

// One thread's own.
class AcceptLimiter {
 public:
  struct Limits {
    double at_once = 512;     // tokens that a bucket holds
    double per_second = 500;  // tokens that come back by themselves
  };

  explicit AcceptLimiter(const Limits& limits) : limits_(limits) {}

  // Covers `fd` as well, a TCP socket that listens, until it is closed.
  void Watch(int fd);

  // A connection has been accepted from there.
  void TakeToken(const PeerNetwork& from, Time now);
  // A peer there has shown who it is.
  void GiveBack(const PeerNetwork& to, Time now);

  // Stops or resumes accepting from each, as the tokens tell.
  void Look(Time now);
  // When to look again, whatever happens; InfiniteFuture while it accepts from
  // everybody.
  Time Deadline() const;

  // From whom it does not accept.
  const std::set<PeerNetwork>& dropped() const { return dropped_; }
  // Of the last filter that the kernel has refused (errno); 0: none. Without
  // filters, nothing is limited.
  int error() const { return error_; }

 private:
  struct Listener {
    int fd = -1;
    uint64_t cookie = 0;

    bool IsOpen() const;
  };
  struct Bucket {
    double tokens = 0;
    Time filled_at;
  };

  double TokensIn(const Bucket& bucket, Time now) const;
  void Add(double tokens, Bucket& bucket, Time now);
  void ForgetFullBuckets(Time now);
  void SetFilter(const Listener& listener);

  const Limits limits_;
  std::vector<Listener> listeners_;
  std::map<PeerNetwork, Bucket> buckets_;  // the others are full
  size_t forget_at_ = 64;                  // buckets
  std::set<PeerNetwork> dropped_;
  bool changed_ = false;  // who is dropped, since the filters were set
  int error_ = 0;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_ACCEPT_LIMITER_H_
