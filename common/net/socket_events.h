// What ZeroMQ tells of a socket's connections.
#ifndef PSRING_COMMON_NET_SOCKET_EVENTS_H_
#define PSRING_COMMON_NET_SOCKET_EVENTS_H_

#include <cstdint>
#include <optional>

#include "zmq.hpp"

namespace psring {

// Its handshakes that have failed.
inline constexpr int kHandshakeFailures = ZMQ_EVENT_HANDSHAKE_FAILED_NO_DETAIL |
                                          ZMQ_EVENT_HANDSHAKE_FAILED_PROTOCOL |
                                          ZMQ_EVENT_HANDSHAKE_FAILED_AUTH;

// Made by the socket's thread; then one thread's own, after a mutex another's.
class SocketEvents {
 public:
  // `wanted`: ZMQ_EVENT_... of `socket`, which is neither bound nor connected
  // yet. Throws what ZeroMQ does.
  SocketEvents(zmq::context_t& context, zmq::socket_t& socket, int wanted);
  SocketEvents(SocketEvents&&) = default;
  SocketEvents& operator=(SocketEvents&&) = default;

  // The last event of `socket` is ZMQ_EVENT_MONITOR_STOPPED. Its thread calls
  // this before the socket ends: ZeroMQ's would wait for somebody to hear of
  // its last connections.
  static void Stop(zmq::socket_t& socket) {
    zmq_socket_monitor(socket.handle(), nullptr, 0);
  }

  // For zmq::poll: there is news.
  void* handle() { return events_.handle(); }
  // Readable when there is news since Next has had none.
  int fd() { return events_.get(zmq::sockopt::fd); }

  struct Event {
    uint16_t kind = 0;
    uint32_t value = 0;  // what it is depends on the kind
  };
  // The next one; nothing where there is none.
  std::optional<Event> Next();

 private:
  zmq::socket_t events_;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_SOCKET_EVENTS_H_
