// TCP connections that this process has accepted and that have not shown yet
// who they are: so many at once, so many bytes from each, for so long. ZeroMQ
// bounds none of these: it takes every connection, reads a message that never
// ends until memory does, and has no limit for one that greets and then waits.
//
// What a connection has sent, and what it has got, the kernel tells
// (TCP_INFO): a stranger cannot write down a wrong number there, and nothing
// has to look at the bytes. ZeroMQ owns the file descriptors; all that is done
// to one here is to reset its connection, which ZeroMQ takes for a peer that
// does so.
#ifndef PSRING_COMMON_NET_VISITORS_H_
#define PSRING_COMMON_NET_VISITORS_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/peer_network.h"

namespace psring {

class Visitors {
 public:
  struct Limits {
    // One more, and the one that has been here for longest goes: a peer of ours
    // is through within milliseconds.
    size_t connections = 1024;
    // A handshake takes less than 1 KiB, and so does a Join.
    int64_t bytes = 4 << 10;
    absl::Duration time = absl::Seconds(10);
  };

  // Connections that were cut off, by why.
  struct Counts {
    int64_t crowd = 0;
    int64_t bytes = 0;
    int64_t time = 0;

    int64_t all() const { return crowd + bytes + time; }
  };

  explicit Visitors(const Limits& limits);
  ~Visitors();
  Visitors(const Visitors&) = delete;
  Visitors& operator=(const Visitors&) = delete;

  // As many at once, from the next one on.
  void AllowConnections(size_t connections) {
    limits_.connections = connections;
  }

  // A connection has been accepted. `proof_bytes`: once its peer has got more
  // than so many bytes from this process, it has shown who it is (RFC 23: a
  // listener says READY only to whom it lets in); 0: Vouch tells. False: it is
  // closed already, or was announced before.
  bool Arrive(int fd, const PeerNetwork& from, int64_t proof_bytes, Time now);

  // Its peer is known. It may be told before the connection arrives.
  void Vouch(uint64_t cookie);
  // The networks of peers that have shown who they are since the last call.
  std::vector<PeerNetwork> TakeShown() { return std::exchange(shown_, {}); }

  // Readable where a visitor has said more. -1: no file could be opened for it.
  int fd() const { return epoll_fd_; }
  // When the next one has been here for too long.
  Time Deadline();
  // Cuts off what is over a limit: at once when fd() is readable, since until
  // then a connection sends what it likes, and at the deadline.
  void Look(Time now);

  bool empty() const { return visitors_.empty(); }
  const Counts& counts() const { return counts_; }

 private:
  struct Visitor {
    int fd = -1;
    PeerNetwork from;
    int64_t proof_bytes = 0;
    Time since;
  };

  // Forgets one that has gone or shown who it is, and cuts off one that is
  // over its limits. True: it stays.
  bool LookAt(uint64_t cookie, Time now);
  void ShowIn(uint64_t cookie);
  void CutOff(uint64_t cookie, int64_t& count);
  // The one that has been here for longest, after those that have been
  // forgotten have been taken out of the queue; not for none.
  uint64_t Oldest();

  Limits limits_;
  const int epoll_fd_;
  std::map<uint64_t, Visitor> visitors_;  // by cookie
  std::deque<uint64_t> queue_;            // all visitors, the oldest first
  std::set<uint64_t> expected_;           // vouched for, not arrived
  std::map<int, uint64_t> newest_;        // that has arrived, by descriptor
  std::vector<PeerNetwork> shown_;
  Counts counts_;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_VISITORS_H_
