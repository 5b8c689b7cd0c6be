// The only door to ZeroMQ.
//
// A Socket belongs to one thread for life: the thread that creates it uses and
// destroys it. Sends never block (queues are unbounded; the protocols above
// bound what is in flight); a receive never waits: Wait() does, with a
// deadline. What cppzmq throws becomes a Status here.
//
// A TCP connection that breaks is made anew, and nothing is lost or comes twice
// (link.h), as long as both threads go on looking at their sockets: they wait
// on those, too, from which they expect nothing.
#ifndef PSRING_COMMON_NET_SOCKET_H_
#define PSRING_COMMON_NET_SOCKET_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/net/cancellation.h"
#include "common/net/link.h"
#include "zmq.hpp"

namespace psring {

// ZeroMQ's I/O threads. Outlives its sockets and is outlived by every buffer
// that a Frame borrows.
class Context {
 public:
  Context() = default;
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

 private:
  friend class Socket;
  zmq::context_t context_{1};
};

// One part of a message. A received frame is ours to change and to send on.
class Frame {
 public:
  Frame() = default;
  // Copies.
  static Frame Copy(absl::string_view bytes);
  // Not initialised: to be filled.
  static Frame OfSize(size_t size_bytes);
  // Sends from where the bytes lie, perhaps again on a new connection: they
  // must not change until something shows that the peer has them, and must
  // outlive the Context.
  static Frame Borrow(const void* data, size_t size_bytes);

  void* data() { return message_.data(); }
  const void* data() const { return message_.data(); }
  size_t size() const { return message_.size(); }
  absl::string_view view() const {
    return {static_cast<const char*>(message_.data()), message_.size()};
  }
  // Another reference to the same bytes; neither may be changed afterwards.
  Frame Share();

 private:
  friend class Socket;
  zmq::message_t message_;
};

using Frames = std::vector<Frame>;

struct SocketOptions {
  // A peer that sends a larger frame is cut off.
  int64_t max_frame_bytes = 16 << 20;
  // How long a closed socket goes on sending what is queued.
  absl::Duration linger = absl::ZeroDuration();
};

class Socket {
 public:
  // A ROUTER bound to `host`:`port` (a numeric address; port 0: the system
  // chooses). Its messages begin with the peer's identity. ALREADY_EXISTS when
  // the port is in use, INVALID_ARGUMENT when the address is not this host's.
  static absl::StatusOr<std::unique_ptr<Socket>> Bind(
      Context& context, absl::string_view host, int port,
      const SocketOptions& options = {});
  // A DEALER connected to "tcp://host:port"; reconnects by itself.
  static absl::StatusOr<std::unique_ptr<Socket>> Connect(
      Context& context, const std::string& endpoint,
      const SocketOptions& options = {});

  ~Socket();

  // Where it is bound ("tcp://10.0.0.1:41234"), or where it connects to.
  const std::string& endpoint() const { return endpoint_; }

  // NOT_FOUND where nobody of that identity has spoken to a ROUTER. One that
  // has gets it when it is connected.
  absl::Status Send(Frames frames);

  // The next message, whole, if one is there. From a peer that does not keep to
  // link.h it has no frames but a ROUTER's identity.
  absl::StatusOr<std::optional<Frames>> TryReceive();

  // Tells every peer what has come from it, as it may wait for that (delivered)
  // when this thread looks at its socket no more.
  void Acknowledge();
  // Whether all that was sent is known to have arrived.
  bool delivered() const;

  // Without identities, link headers and repeats.
  int64_t bytes_sent() const { return bytes_sent_; }
  int64_t bytes_received() const { return bytes_received_; }

 private:
  friend absl::Status Wait(absl::Span<Socket* const> sockets,
                           absl::Span<const int> fds, Time deadline);

  // Another socket, as this one talks to it.
  struct Peer {
    Link link;
    std::deque<Frames> kept;  // what it may not have, the oldest first
    int64_t untold_bytes = 0;
  };

  Socket(zmq::socket_t socket, bool router)
      : socket_(std::move(socket)), router_(router) {}
  static absl::StatusOr<std::unique_ptr<Socket>> Create(
      Context& context, zmq::socket_type type, const SocketOptions& options);
  // A DEALER tells of its connections from now on.
  void Monitor(Context& context);
  // Of a DEALER: a connection has been made.
  void OnConnected();

  Peer* Find(absl::string_view identity);
  // Who says `header`; a ROUTER meets new ones. Null: nobody who could.
  Peer* Hear(absl::string_view identity, const LinkHeader& header);
  std::optional<Frames> Take(Frames frames);
  // What the link itself has to say to what the peer has said.
  void Answer(absl::string_view identity, Peer& peer, LinkHeader::Kind kind,
              const Link::News& news);
  absl::StatusOr<std::optional<Frames>> ReceiveFrames();
  // `identity`: empty at a DEALER.
  absl::Status Transmit(absl::string_view identity, const LinkHeader& header,
                        absl::Span<Frame> frames);
  void Resend(absl::string_view identity, Peer& peer);
  void TellHeard(absl::string_view identity, Peer& peer);

  zmq::socket_t socket_;
  const bool router_;
  std::string endpoint_;
  Peer peer_;                                       // a DEALER's only one
  std::map<std::string, Peer, std::less<>> peers_;  // a ROUTER's, by identity
  std::optional<zmq::socket_t> monitor_;            // a DEALER's
  int connections_ = 0;                             // a DEALER's, so far
  int64_t bytes_sent_ = 0;
  int64_t bytes_received_ = 0;
};

// Blocks until a message may be there on one of the sockets, one of `fds` is
// readable, or the deadline has passed; all three return OK.
absl::Status Wait(absl::Span<Socket* const> sockets, absl::Span<const int> fds,
                  Time deadline);

// The same, and the reason of a cancelled process as its error.
absl::Status Wait(absl::Span<Socket* const> sockets,
                  const Cancellation& cancellation, Time deadline);

}  // namespace psring

#endif  // PSRING_COMMON_NET_SOCKET_H_
