// The only door to ZeroMQ.
//
// One thread uses a Socket at a time, and nearly always the one that creates
// it, for life; who hands one on does so under a mutex (docs/architecture.md,
// Threads). Sends never block (queues are unbounded; the protocols above
// bound what is in flight); a receive never waits: Wait() does, with a
// deadline. What cppzmq throws becomes a Status here.
//
// A TCP connection that breaks is made anew, and nothing is lost or comes twice
// (link.h), as long as both threads go on looking at their sockets: they wait
// on those, too, from which they expect nothing.
//
// Whether it is encrypted, and who may speak, is the Context's (context.h).
#ifndef PSRING_COMMON_NET_SOCKET_H_
#define PSRING_COMMON_NET_SOCKET_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/net/cancellation.h"
#include "common/net/context.h"
#include "common/net/handshakes.h"
#include "common/net/link.h"
#include "zmq.hpp"

namespace psring {

// One part of a message. A received frame is ours to change and to send on.
class Frame {
 public:
  Frame() = default;
  // Copies.
  static Frame Copy(absl::string_view bytes);
  // Not initialised: to be filled.
  static Frame OfSize(size_t size_bytes);
  // Sends from where the bytes lie, perhaps again on a new connection: they
  // must not change until something shows that the peer has them. `memory`
  // keeps them where they are; null: they outlive the Context.
  static Frame Borrow(const void* data, size_t size_bytes,
                      std::shared_ptr<const void> memory);

  void* data() { return message_.data(); }
  const void* data() const { return message_.data(); }
  size_t size() const { return message_.size(); }
  absl::string_view view() const {
    return {static_cast<const char*>(message_.data()), message_.size()};
  }
  // Another reference to the same bytes; neither may be changed afterwards.
  Frame Share();

  // As whom the doorkeeper has let in the peer that sent this to a ROUTER; "":
  // the context asks for no proof.
  absl::string_view user() const;
  // The worker whose key, or token, the peer that sent this to a data socket
  // has shown; -1: the context asks for neither.
  int proven_rank() const;

 private:
  friend class Socket;
  zmq::message_t message_;
};

using Frames = std::vector<Frame>;

// Of a message that has come to a ROUTER, whose header follows the peer's
// identity: the header's Frame::proven_rank; -1 also where there is none.
int ProvenRank(const Frames& frames);

// PERMISSION_DENIED where a message says that worker `sender` has sent it, and
// its Frame::proven_rank is another's.
absl::Status CheckSender(int proven_rank, uint32_t sender);

struct SocketOptions {
  enum class Plane { kControl, kData };

  Plane plane = Plane::kData;
  // Of whom a data socket connects to: its Context::public_key.
  std::string peer_key = {};
  // A peer that sends a larger frame is cut off.
  int64_t max_frame_bytes = 16 << 20;
  // Of a DEALER: after so long without a connection, while what it has sent has
  // not arrived, TryReceive returns UNAVAILABLE; half of that, or a little more
  // than it takes to notice a dead process, after which the log says so.
  // Sooner where waits are short (Context::ExpectWaitsOf).
  absl::Duration unreachable_after = absl::InfiniteDuration();
  // How long a closed socket goes on sending what is queued.
  absl::Duration linger = absl::ZeroDuration();
};

// For sockets without whose peer the job cannot continue. Longer than a switch
// or a route takes to come back.
inline constexpr absl::Duration kUnreachableAfter = absl::Seconds(30);

class Socket {
 public:
  // A ROUTER bound to `host`:`port` (a numeric address; port 0: the system
  // chooses, or the context has ports for it). Its messages begin with the
  // peer's identity. ALREADY_EXISTS when the port is in use,
  // RESOURCE_EXHAUSTED when all of the context's are, INVALID_ARGUMENT when the
  // address is not this host's.
  static absl::StatusOr<std::unique_ptr<Socket>> Bind(
      Context& context, absl::string_view host, int port,
      const SocketOptions& options = {});
  // Of a ROUTER: it listens at `host` (a numeric address), too, on the same
  // port. Errors: as Bind's.
  absl::Status BindAlso(absl::string_view host);
  // A DEALER connected to "tcp://host:port"; reconnects by itself. Where the
  // peer has another key, or one of them has none, TryReceive says so soon
  // (PERMISSION_DENIED).
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
  // Of a DEALER: how many messages are not.
  int undelivered() const { return static_cast<int>(peer_.kept.size()); }

  // A control ROUTER's peer is one of the job's, and is not forgotten. Without
  // that it is when many others have come, or much is kept for such peers; and
  // where nobody has a key, its connection ends after some seconds or kilobytes
  // (visitors.h).
  void Vouch(absl::string_view identity);

  // What a control ROUTER's peer says from now on is neither read nor
  // acknowledged. What has been sent to it still arrives.
  void Ignore(absl::string_view identity);

  // Of a ROUTER: connections that were refused since the last call, by why.
  struct Refusals {
    int64_t other_key = 0;
    int64_t no_key = 0;     // where this socket has one
    int64_t needs_key = 0;  // where this socket has none
  };
  Refusals TakeRefusals();

  // Without identities, link headers and repeats.
  int64_t bytes_sent() const { return bytes_sent_; }
  int64_t bytes_received() const { return bytes_received_; }

 private:
  friend absl::StatusOr<bool> WaitForMessage(absl::Span<Socket* const> sockets,
                                             absl::Span<const int> fds,
                                             Time deadline);

  // Another socket, as this one talks to it.
  struct Peer {
    Link link;
    std::deque<Frames> kept;  // what it may not have, the oldest first
    int64_t untold_bytes = 0;
    bool vouched = false;
    bool ignored = false;
    int fd = -1;  // ZeroMQ's, of its connection; where it needs a Vouch
    // When all its connections so far have had their interval.
    Time resumed_until = Time::InfinitePast();
  };

  struct HashOf {
    using is_transparent = void;
    size_t operator()(absl::string_view identity) const {
      return std::hash<std::string_view>()({identity.data(), identity.size()});
    }
  };

  Socket(zmq::socket_t socket, bool router)
      : socket_(std::move(socket)),
        router_(router),
        fd_(socket_.get(zmq::sockopt::fd)) {}
  static absl::StatusOr<std::unique_ptr<Socket>> Create(
      Context& context, zmq::socket_type type, const SocketOptions& options);
  void SetOptions(const SocketOptions& options, bool encrypted);
  void SetProof(Context& context, const SocketOptions& options);
  absl::Status Listen(const std::string& endpoint);
  // Whether there is something to receive.
  bool HasInput();
  // Of a DEALER: something is to be sent to a peer that it should be connected
  // to, and is not.
  bool MissesConnection() const {
    return handshakes_.has_value() && handshakes_->MissesConnection() &&
           !peer_.kept.empty();
  }
  void OnHandshakes();

  Peer* Find(absl::string_view identity);
  bool IsNewcomer(const Peer& peer) const { return vouches_ && !peer.vouched; }
  // What is kept for `peer`, one of them, counts as theirs no more.
  void LeaveNewcomers(const Peer& peer);
  void ForgetOldestNewcomer();
  // Who says `header`, in `frame`; a ROUTER meets new ones. Null: nobody who
  // could.
  Peer* Hear(absl::string_view identity, const Frame& frame,
             const LinkHeader& header);
  void ForgetOldestOf(int rank);
  void NoteConnection(Peer& peer, Frame& frame, LinkHeader::Kind kind);
  std::optional<Frames> Take(Frames frames);
  // False: it connects anew more often than any connection can break.
  bool MayConnectAnew(Peer& peer, LinkHeader::Kind kind);
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
  const int fd_;  // ZeroMQ's, readable when there is news
  // There was nothing, and nothing was done with it since: see HasInput.
  bool told_ = false;
  std::string endpoint_;
  Peer peer_;  // a DEALER's only one
  // A ROUTER's, by identity.
  std::unordered_map<std::string, Peer, HashOf, std::equal_to<>> peers_;
  std::deque<std::string> newcomers_;  // the oldest first; some are vouched for
  int64_t newcomer_bytes_ = 0;         // kept for peers that nobody vouched for
  // A data ROUTER's, by the rank that they have shown; the oldest first.
  std::unordered_map<int, std::deque<std::string>> identities_of_;
  std::optional<Handshakes> handshakes_;        // a DEALER's
  Doorkeeper* doorkeeper_ = nullptr;            // a ROUTER's; null: none
  std::shared_ptr<RefusedHandshakes> refused_;  // the same
  bool proven_ = false;   // a ROUTER whose peers have all shown who they are
  bool vouches_ = false;  // a ROUTER that anybody may speak to who gets in
  int64_t bytes_sent_ = 0;
  int64_t bytes_received_ = 0;
};

// Blocks until a message may be there on one of the sockets (true), one of
// `fds` is readable, a socket that is not connected may have news, or the
// deadline has passed.
absl::StatusOr<bool> WaitForMessage(absl::Span<Socket* const> sockets,
                                    absl::Span<const int> fds, Time deadline);

// The same; all three return OK.
absl::Status Wait(absl::Span<Socket* const> sockets, absl::Span<const int> fds,
                  Time deadline);

// The same, and the reason of a cancelled process as its error.
absl::Status Wait(absl::Span<Socket* const> sockets,
                  const Cancellation& cancellation, Time deadline);

}  // namespace psring

#endif  // PSRING_COMMON_NET_SOCKET_H_
