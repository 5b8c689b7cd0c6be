// What becomes of a DEALER's handshakes: whether it is connected, or connected
// anew, and why its peer will not talk to it. ZeroMQ tries for ever, in
// silence; a wrong key is to be said within seconds.
#ifndef PSRING_COMMON_NET_HANDSHAKES_H_
#define PSRING_COMMON_NET_HANDSHAKES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/socket_events.h"
#include "zmq.hpp"

namespace psring {

// Its socket's thread's own, and outlived by it.
class Handshakes {
 public:
  // `dealer` is not connected yet; it will be to `endpoint`. `keyed`: with a
  // key. Throws what ZeroMQ does.
  Handshakes(zmq::context_t& context, zmq::socket_t& dealer,
             std::string endpoint, bool keyed,
             absl::Duration unreachable_after);
  ~Handshakes();

  // Readable when there is news, once the last Read has taken all.
  int fd() { return events_.fd(); }

  // Takes all news. Whether a connection has been made in place of another.
  bool Read();

  // Whether a connection should be there, and is not, as of the last Read;
  // while something is to be sent, CheckReach then has to be called now and
  // then.
  bool MissesConnection() const {
    return !connected_ && unreachable_after_ < absl::InfiniteDuration();
  }
  // Something is to be sent. Logs that there has been no connection for long
  // since that was first so.
  void CheckReach(Time now);

  // PERMISSION_DENIED, with the remedy: the peer has another key, or one of
  // both has none. UNAVAILABLE: the connection is disturbed again and again, or
  // there has been none for too long.
  const absl::Status& refused() const { return refused_; }

 private:
  void OnRefused(uint16_t event, uint32_t reason);
  void WarnOfSilence() const;
  absl::Status ConnectAnew();

  zmq::socket_t& dealer_;
  const std::string endpoint_;
  const bool keyed_;
  const absl::Duration unreachable_after_;
  SocketEvents events_;
  int connections_ = 0;  // so far
  bool connected_ = false;
  Time missed_since_ = Time::InfiniteFuture();
  bool told_ = false;    // that it has not been for long
  int hung_up_ = 0;      // on handshakes, one after the other
  bool greets_ = false;  // the peer, which has hung up on all, as it should
  absl::Status refused_;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_HANDSHAKES_H_
