// How many connections a second a process accepts from strangers. Each costs
// ZeroMQ and the kernel a fifth of a millisecond or so, whatever becomes of it,
// and that is taken from training.
//
// A token bucket for each address (Turner, "New directions in communications",
// 1986): accepting takes a token, and a peer that shows who it is gives it
// back, so that only unfinished handshakes count. While an address has no
// tokens, a filter on the listening sockets (McCanne and Jacobson, "The BSD
// packet filter", 1993) makes the kernel drop its requests for a connection.
// The peer's kernel repeats the request a second later: peers of the job at
// that address get in after some tries. Connections that exist continue, and
// other addresses are not affected.
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
  // So many limiters, in one process, share the limits.
  void ShareAmong(size_t limiters);

  // A connection has been accepted from there.
  void TakeToken(const PeerNetwork& from, Time now);
  // A peer there has shown who it is.
  void GiveBack(const PeerNetwork& to, Time now);

  // Stops accepting from addresses that have no tokens, and resumes.
  void Look(Time now);
  // When to look again, whatever happens; InfiniteFuture while it accepts from
  // everybody.
  Time Deadline() const;

  // From whom it does not accept.
  const std::set<PeerNetwork>& dropped() const { return dropped_; }
  // Why the kernel refuses the filters (errno); 0: it does not. Look tries
  // again. Without filters, nothing is limited.
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

  double AtOnce() const { return limits_.at_once / sharers_; }
  double PerSecond() const { return limits_.per_second / sharers_; }
  double TokensIn(const Bucket& bucket, Time now) const;
  void Add(double tokens, Bucket& bucket, Time now);
  void ForgetFullBuckets(Time now);
  void SetFilters();

  const Limits limits_;
  double sharers_ = 1;
  std::vector<Listener> listeners_;
  std::map<PeerNetwork, Bucket> buckets_;  // the others are full
  size_t forget_at_ = 64;                  // buckets
  std::set<PeerNetwork> dropped_;
  bool filters_are_set_ = true;  // as dropped_ has it
  int error_ = 0;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_ACCEPT_LIMITER_H_
