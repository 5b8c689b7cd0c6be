#include "common/net/socket_events.h"

#include <atomic>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/net/zmq_error.h"

namespace psring {

SocketEvents::SocketEvents(zmq::context_t& context, zmq::socket_t& socket,
                           int wanted) {
  static std::atomic<int64_t> sockets = 0;
  const std::string name = absl::StrCat("inproc://events-", sockets++);
  Uninterrupted([&] {
    if (zmq_socket_monitor(socket.handle(), name.c_str(), wanted) != 0) {
      throw zmq::error_t();
    }
  });
  events_ = zmq::socket_t(context, zmq::socket_type::pair);
  events_.set(zmq::sockopt::linger, 0);
  // ZeroMQ's thread would wait where there is no room.
  events_.set(zmq::sockopt::rcvhwm, 0);
  Uninterrupted([&] { events_.connect(name); });
}

std::optional<SocketEvents::Event> SocketEvents::Next() {
  zmq::message_t part;
  const auto receive = [&] {
    return events_.recv(part, zmq::recv_flags::dontwait).has_value();
  };
  while (Uninterrupted(receive)) {
    Event event;
    // The event, and a number of its own; then where, which is passed over.
    if (!part.more() ||
        part.size() != sizeof(event.kind) + sizeof(event.value)) {
      continue;
    }
    std::memcpy(&event.kind, part.data(), sizeof(event.kind));
    std::memcpy(&event.value, part.data<char>() + sizeof(event.kind),
                sizeof(event.value));
    return event;
  }
  return std::nullopt;
}

}  // namespace psring
