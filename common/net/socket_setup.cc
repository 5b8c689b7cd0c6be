// How sockets are made: what they prove and ask, and when a connection counts
// as broken. What they say: socket.cc.
#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/net/address.h"
#include "common/net/socket.h"
#include "common/net/zmq_error.h"

namespace psring {
namespace {

constexpr int kConnectMs = 1500;
constexpr int kHandshakeMs = 5000;
// A connection may be missing for so long, however short waits are.
constexpr absl::Duration kOutage = absl::Seconds(5);
// What encryption adds to a frame at most.
constexpr int64_t kCurveBytes = 64;

// What the kernel takes from somebody whom nobody has vouched for before
// ZeroMQ reads it: with the megabytes that it takes otherwise, a stranger has
// said that many before anybody can look (visitors.h).
constexpr int kNewcomerBytes = 4 << 10;

// An IPv6 address goes in brackets.
std::string Endpoint(absl::string_view host, int port) {
  const std::string name(host);
  const bool v6 = name.find(':') != std::string::npos && name[0] != '[';
  return absl::StrCat("tcp://", v6 ? "[" : "", host, v6 ? "]" : "", ":",
                      port == 0 ? "*" : absl::StrCat(port));
}

// SocketOptions::unreachable_after, or sooner.
absl::Duration UnreachableAfter(const Context& context,
                                const SocketOptions& options) {
  const absl::Duration most = options.unreachable_after;
  if (most == absl::InfiniteDuration()) return most;
  return std::min(most, std::max(context.expected_waits() / 2, kOutage));
}

// Nobody else has it, nor guesses it. It must not begin with a zero.
std::string RandomIdentity() {
  std::random_device random;
  std::string identity = "p";
  for (int i = 0; i < 4; ++i) {
    const uint32_t word = random();
    identity.append(reinterpret_cast<const char*>(&word), sizeof(word));
  }
  return identity;
}

// Both ends notice within seconds, and the DEALER connects anew at once. It is
// the kernel that asks whether a silent peer is there: with heartbeats of
// ZeroMQ 4.3, a socket that lingers fails an assertion where its peer says
// something and then breaks off (stream_engine_base.cpp, out_event from
// timer_event).
void FindBrokenConnections(zmq::socket_t& socket, bool router) {
  socket.set(zmq::sockopt::reconnect_ivl, 50);
  socket.set(zmq::sockopt::reconnect_ivl_max, 250);
  socket.set(zmq::sockopt::handshake_ivl, kHandshakeMs);
  if (!router) {
    // The kernel repeats a request that is lost after 1, 2, 4, 8 ... seconds;
    // ZeroMQ gives it up and makes another.
    socket.set(zmq::sockopt::connect_timeout, kConnectMs);
  }
  // For an answer to what was sent, and to the kernel's questions.
  socket.set(zmq::sockopt::tcp_maxrt, 3000);
  socket.set(zmq::sockopt::tcp_keepalive, 1);
  socket.set(zmq::sockopt::tcp_keepalive_idle, 1);
  socket.set(zmq::sockopt::tcp_keepalive_intvl, 1);
  socket.set(zmq::sockopt::tcp_keepalive_cnt, 3);
}

void SetKey(zmq::socket_t& socket, int option, absl::string_view key) {
  if (zmq_setsockopt(socket.handle(), option, key.data(), key.size()) != 0) {
    throw zmq::error_t();
  }
}

void ShowPair(zmq::socket_t& socket, const KeyPair& pair) {
  SetKey(socket, ZMQ_CURVE_PUBLICKEY, pair.public_key.view());
  SetKey(socket, ZMQ_CURVE_SECRETKEY, pair.secret_key.view());
}

}  // namespace

// Whom it shows to its peers, and what it asks of them.
void Socket::SetProof(Context& context, const SocketOptions& options) {
  const bool control = options.plane == SocketOptions::Plane::kControl;
  if (router_) {
    socket_.set(zmq::sockopt::zap_domain,
                control ? kControlDomain : kDataDomain);
  }
  if (context.secured()) {
    if (router_) {
      socket_.set(zmq::sockopt::curve_server, true);
      ShowPair(socket_, control ? context.coordinator_ : context.own_);
      return;
    }
    ShowPair(socket_, control ? context.member_ : context.own_);
    SetKey(socket_, ZMQ_CURVE_SERVERKEY,
           control ? context.coordinator_.public_key.view()
                   : absl::string_view(options.peer_key));
  } else if (router_) {
    socket_.set(zmq::sockopt::plain_server, true);
  } else {
    socket_.set(zmq::sockopt::plain_username, context.token_);
    socket_.set(zmq::sockopt::plain_password, options.peer_key);
  }
}

absl::StatusOr<std::unique_ptr<Socket>> Socket::Create(
    Context& context, zmq::socket_type type, const SocketOptions& options) {
  using Proof = Context::Proof;
  const bool router = type == zmq::socket_type::router;
  const bool control = options.plane == SocketOptions::Plane::kControl;
  // Nobody can have a token before joining.
  const bool proves = context.proof_ == Proof::kKey ||
                      (context.proof_ == Proof::kToken && !control);
  if (proves && !router && !control && options.peer_key.size() != kKeyBytes) {
    return absl::InvalidArgumentError("the peer has told no public key");
  }
  try {
    std::unique_ptr<Socket> socket(
        new Socket(zmq::socket_t(context.context_, type), router));
    socket->SetOptions(options, context.secured());
    if (proves) socket->SetProof(context, options);
    socket->proven_ = proves && router;
    if (router && context.doorkeeper_ != nullptr) {
      socket->doorkeeper_ = context.doorkeeper_.get();
      socket->refused_ =
          context.doorkeeper_->Watch(socket->socket_, /*keyed=*/proves);
      socket->vouches_ = control;
      if (!proves) {
        socket->socket_.set(zmq::sockopt::rcvbuf, kNewcomerBytes);
      }
    }
    return socket;
  } catch (const zmq::error_t& error) {
    return ErrorOf(error, "cannot create a socket");
  }
}

void Socket::SetOptions(const SocketOptions& options, bool encrypted) {
  socket_.set(zmq::sockopt::linger,
              static_cast<int>(absl::ToInt64Milliseconds(options.linger)));
  socket_.set(zmq::sockopt::sndhwm, 0);
  socket_.set(zmq::sockopt::rcvhwm, 0);
  socket_.set(zmq::sockopt::maxmsgsize,
              options.max_frame_bytes + (encrypted ? kCurveBytes : 0));
  FindBrokenConnections(socket_, router_);
  if (router_) {
    socket_.set(zmq::sockopt::router_mandatory, true);
    // A peer that connects anew takes the place of its old connection.
    socket_.set(zmq::sockopt::router_handover, true);
  } else {
    socket_.set(zmq::sockopt::routing_id, RandomIdentity());
  }
}

absl::StatusOr<std::unique_ptr<Socket>> Socket::Bind(
    Context& context, absl::string_view host, int port,
    const SocketOptions& options) {
  auto socket = Create(context, zmq::socket_type::router, options);
  if (!socket.ok()) return socket;
  const PortRange ports = port == 0 ? context.ports_ : PortRange{port, port};
  // From a random one on: processes that start together do not all try the
  // same.
  const int size = ports.last - ports.first + 1;
  const int start = static_cast<int>(std::random_device()() % size);
  absl::Status status;
  for (int i = 0; i < size; ++i) {
    status =
        (*socket)->Listen(Endpoint(host, ports.first + (start + i) % size));
    if (status.ok()) return socket;
    if (!absl::IsAlreadyExists(status)) return status;
  }
  if (port != 0 || ports.first == 0) return status;
  return absl::ResourceExhaustedError(absl::StrCat(
      "cannot listen at ", host, ": all of its ports ", ports.first, "-",
      ports.last, " (--ports, PSRING_PORTS) are in use. Give more"));
}

absl::Status Socket::Listen(const std::string& endpoint) {
  try {
    socket_.set(zmq::sockopt::ipv6, endpoint.find('[') != endpoint.npos);
    Uninterrupted([&] { socket_.bind(endpoint); });
    endpoint_ = socket_.get(zmq::sockopt::last_endpoint);
    return absl::OkStatus();
  } catch (const zmq::error_t& error) {
    return ErrorOf(error, absl::StrCat("cannot listen on ", endpoint));
  }
}

absl::Status Socket::BindAlso(absl::string_view host) {
  const std::string endpoint = Endpoint(host, ParseEndpoint(endpoint_)->port);
  try {
    socket_.set(zmq::sockopt::ipv6, endpoint.find('[') != endpoint.npos);
    Uninterrupted([&] { socket_.bind(endpoint); });
    return absl::OkStatus();
  } catch (const zmq::error_t& error) {
    return ErrorOf(error, absl::StrCat("cannot listen on ", endpoint));
  }
}

absl::StatusOr<std::unique_ptr<Socket>> Socket::Connect(
    Context& context, const std::string& endpoint,
    const SocketOptions& options) {
  auto socket = Create(context, zmq::socket_type::dealer, options);
  if (!socket.ok()) return socket;
  zmq::socket_t& dealer = (*socket)->socket_;
  try {
    dealer.set(zmq::sockopt::ipv6, endpoint.find('[') != endpoint.npos);
    (*socket)->endpoint_ = endpoint;
    (*socket)->handshakes_.emplace(context.context_, dealer, endpoint,
                                   context.secured(),
                                   UnreachableAfter(context, options));
    Uninterrupted([&] { dealer.connect(endpoint); });
  } catch (const zmq::error_t& error) {
    return ErrorOf(error, absl::StrCat("cannot connect to ", endpoint));
  }
  return socket;
}

}  // namespace psring
