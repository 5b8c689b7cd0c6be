// What becomes of a DEALER's handshakes: whether it is connected, or connected
// anew, and why its peer will not talk to it. ZeroMQ tries for ever, in
// silence; a wrong key is to be said within seconds.
#ifndef PSRING_COMMON_NET_HANDSHAKES_H_
#define PSRING_COMMON_NET_HANDSHAKES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "common/net/socket_events.h"
#include "zmq.hpp"

namespace psring {

// Its socket's thread's own, and outlived by it.
class Handshakes {
 public:
  // `dealer` is not connected yet; it will be to `endpoint`. `keyed`: with a
  // key. Throws what ZeroMQ does.
  Handshakes(zmq::context_t& context, zmq::socket_t& dealer,
             std::string endpoint, bool keyed);
  ~Handshakes();

  // Readable when there is news, once the last Read has taken all.
  int fd() { return events_.fd(); }

  // Takes all news. Whether a connection has been made in place of another.
  bool Read();

  // PERMISSION_DENIED, with the remedy: the peer has another key, or one of
  // both has none. UNAVAILABLE: the connection is disturbed again and again.
  const absl::Status& refused() const { return refused_; }

 private:
  void OnRefused(uint16_t event, uint32_t reason);
  void WarnOfSilence() const;
  absl::Status ConnectAnew();

  zmq::socket_t& dealer_;
  const std::string endpoint_;
  const bool keyed_;
  SocketEvents events_;
  int connections_ = 0;  // so far
  int hung_up_ = 0;      // on handshakes, one after the other
  bool greets_ = false;  // the peer, which has hung up on all, as it should
  absl::Status refused_;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_HANDSHAKES_H_
