#include "common/net/socket.h"

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {
namespace {

constexpr int kLinkMessagesAtOnce = 64;
// A peer that says nothing else tells after so many messages, or bytes, that it
// has them: its peer keeps them until then.
constexpr uint64_t kMaxUntold = 16;
constexpr int64_t kMaxUntoldBytes = 4 << 20;

absl::Status ErrorOf(const zmq::error_t& error, absl::string_view what) {
  const std::string message = absl::StrCat(what, ": ", error.what());
  switch (error.num()) {
    case EADDRINUSE:
      return absl::AlreadyExistsError(
          absl::StrCat(message,
                       ". Another process listens there: stop it, or choose "
                       "another port"));
    case EADDRNOTAVAIL:
    case ENODEV:
      return absl::InvalidArgumentError(
          absl::StrCat(message, ". The address must be one of this host's"));
    case EHOSTUNREACH:
      return absl::NotFoundError(message);
    case EINVAL:
      return absl::InvalidArgumentError(message);
    case EMFILE:
      return absl::ResourceExhaustedError(
          absl::StrCat(message, ". Raise the limit of open files (ulimit -n)"));
    default:
      return absl::UnavailableError(message);
  }
}

// An IPv6 address goes in brackets.
std::string Endpoint(absl::string_view host, int port) {
  const std::string name(host);
  const bool v6 = name.find(':') != std::string::npos && name[0] != '[';
  return absl::StrCat("tcp://", v6 ? "[" : "", host, v6 ? "]" : "", ":",
                      port == 0 ? "*" : absl::StrCat(port));
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

// Both ends notice within seconds, and the DEALER connects anew at once.
void FindBrokenConnections(zmq::socket_t& socket) {
  socket.set(zmq::sockopt::reconnect_ivl, 50);
  socket.set(zmq::sockopt::reconnect_ivl_max, 250);
  socket.set(zmq::sockopt::heartbeat_ivl, 1000);
  socket.set(zmq::sockopt::heartbeat_timeout, 3000);
  socket.set(zmq::sockopt::tcp_maxrt, 3000);
  socket.set(zmq::sockopt::tcp_keepalive, 1);
  socket.set(zmq::sockopt::tcp_keepalive_idle, 5);
  socket.set(zmq::sockopt::tcp_keepalive_intvl, 1);
  socket.set(zmq::sockopt::tcp_keepalive_cnt, 3);
}

}  // namespace

Context::~Context() { context_.close(); }

Frame Frame::Copy(absl::string_view bytes) {
  Frame frame;
  // No bytes may have no address, which memcpy must not be given.
  if (!bytes.empty()) frame.message_.rebuild(bytes.data(), bytes.size());
  return frame;
}

Frame Frame::OfSize(size_t size_bytes) {
  Frame frame;
  frame.message_.rebuild(size_bytes);
  return frame;
}

Frame Frame::Borrow(const void* data, size_t size_bytes) {
  Frame frame;
  // ZeroMQ only reads what it sends.
  frame.message_.rebuild(
      const_cast<void*>(data), size_bytes, [](void*, void*) {}, nullptr);
  return frame;
}

Frame Frame::Share() {
  Frame frame;
  frame.message_.copy(message_);
  return frame;
}

absl::StatusOr<std::unique_ptr<Socket>> Socket::Create(
    Context& context, zmq::socket_type type, const SocketOptions& options) {
  try {
    zmq::socket_t socket(context.context_, type);
    socket.set(zmq::sockopt::linger,
               static_cast<int>(absl::ToInt64Milliseconds(options.linger)));
    socket.set(zmq::sockopt::sndhwm, 0);
    socket.set(zmq::sockopt::rcvhwm, 0);
    socket.set(zmq::sockopt::maxmsgsize, options.max_frame_bytes);
    FindBrokenConnections(socket);
    const bool router = type == zmq::socket_type::router;
    if (router) {
      socket.set(zmq::sockopt::router_mandatory, true);
      // A peer that connects anew takes the place of its old connection.
      socket.set(zmq::sockopt::router_handover, true);
    } else {
      socket.set(zmq::sockopt::routing_id, RandomIdentity());
    }
    return std::unique_ptr<Socket>(new Socket(std::move(socket), router));
  } catch (const zmq::error_t& error) {
    return ErrorOf(error, "cannot create a socket");
  }
}

absl::StatusOr<std::unique_ptr<Socket>> Socket::Bind(
    Context& context, absl::string_view host, int port,
    const SocketOptions& options) {
  auto socket = Create(context, zmq::socket_type::router, options);
  if (!socket.ok()) return socket;
  const std::string endpoint = Endpoint(host, port);
  try {
    (*socket)->socket_.set(zmq::sockopt::ipv6,
                           endpoint.find('[') != endpoint.npos);
    (*socket)->socket_.bind(endpoint);
    (*socket)->endpoint_ = (*socket)->socket_.get(zmq::sockopt::last_endpoint);
  } catch (const zmq::error_t& error) {
    return ErrorOf(error, absl::StrCat("cannot listen on ", endpoint));
  }
  return socket;
}

absl::StatusOr<std::unique_ptr<Socket>> Socket::Connect(
    Context& context, const std::string& endpoint,
    const SocketOptions& options) {
  auto socket = Create(context, zmq::socket_type::dealer, options);
  if (!socket.ok()) return socket;
  try {
    (*socket)->socket_.set(zmq::sockopt::ipv6,
                           endpoint.find('[') != endpoint.npos);
    (*socket)->Monitor(context);
    (*socket)->socket_.connect(endpoint);
    (*socket)->endpoint_ = endpoint;
  } catch (const zmq::error_t& error) {
    return ErrorOf(error, absl::StrCat("cannot connect to ", endpoint));
  }
  return socket;
}

// ZeroMQ's thread would wait for somebody to hear of its last connections.
Socket::~Socket() {
  if (monitor_.has_value()) zmq_socket_monitor(socket_.handle(), nullptr, 0);
}

void Socket::Monitor(Context& context) {
  static std::atomic<int64_t> monitors = 0;
  const std::string name = absl::StrCat("inproc://monitor-", monitors++);
  if (zmq_socket_monitor(socket_.handle(), name.c_str(),
                         ZMQ_EVENT_HANDSHAKE_SUCCEEDED) != 0) {
    throw zmq::error_t();
  }
  monitor_.emplace(context.context_, zmq::socket_type::pair);
  monitor_->set(zmq::sockopt::linger, 0);
  monitor_->connect(name);
}

void Socket::OnConnected() {
  zmq::message_t part;
  while (monitor_->recv(part, zmq::recv_flags::dontwait)) {
    if (part.more()) continue;  // the event; then where
    // Messages of the first connection need no introduction.
    if (++connections_ == 1) continue;
    Transmit("", peer_.link.Say(LinkHeader::Kind::kResume), {}).IgnoreError();
  }
}

Socket::Peer* Socket::Find(absl::string_view identity) {
  if (!router_) return &peer_;
  const auto found = peers_.find(identity);
  return found == peers_.end() ? nullptr : &found->second;
}

Socket::Peer* Socket::Hear(absl::string_view identity,
                           const LinkHeader& header) {
  Peer* const known = Find(identity);
  // ZeroMQ gives such a name to a connection that another has taken the place
  // of: what is left in it comes again over that one.
  if (router_ && (identity.empty() || identity[0] == '\0')) return nullptr;
  const bool begins = header.received == 0 && header.number <= 1 &&
                      header.kind != LinkHeader::Kind::kAck;
  if (known != nullptr || !begins) return known;
  return &peers_[std::string(identity)];
}

absl::Status Socket::Send(Frames frames) {
  std::string identity;
  if (router_) identity = std::string(frames[0].view());
  Peer* const peer = Find(identity);
  if (peer == nullptr) {
    return absl::NotFoundError(absl::StrCat(
        "cannot send on ", endpoint_, ": nobody has connected as ", identity));
  }
  const absl::Span<Frame> parts = absl::MakeSpan(frames).subspan(router_);
  Frames kept;
  kept.reserve(parts.size());
  for (Frame& part : parts) {
    bytes_sent_ += static_cast<int64_t>(part.size());
    kept.push_back(part.Share());
  }
  peer->kept.push_back(std::move(kept));
  peer->untold_bytes = 0;
  return Transmit(identity, peer->link.Next(), parts);
}

absl::Status Socket::Transmit(absl::string_view identity,
                              const LinkHeader& header,
                              absl::Span<Frame> frames) {
  const auto flags = [](bool more) {
    return more ? zmq::send_flags::sndmore : zmq::send_flags::none;
  };
  try {
    if (router_)
      socket_.send(zmq::buffer(identity.data(), identity.size()), flags(true));
    socket_.send(zmq::buffer(Encode(header)), flags(!frames.empty()));
    for (size_t i = 0; i < frames.size(); ++i) {
      socket_.send(frames[i].message_, flags(i + 1 < frames.size()));
    }
    return absl::OkStatus();
  } catch (const zmq::error_t& error) {
    // It is kept until the peer is connected.
    if (error.num() == EHOSTUNREACH) return absl::OkStatus();
    return ErrorOf(error, absl::StrCat("cannot send on ", endpoint_));
  }
}

void Socket::Resend(absl::string_view identity, Peer& peer) {
  for (size_t i = 0; i < peer.kept.size(); ++i) {
    Frames frames;
    for (Frame& part : peer.kept[i]) frames.push_back(part.Share());
    Transmit(identity, peer.link.Again(i), absl::MakeSpan(frames))
        .IgnoreError();
  }
}

void Socket::TellHeard(absl::string_view identity, Peer& peer) {
  peer.untold_bytes = 0;
  Transmit(identity, peer.link.Say(LinkHeader::Kind::kAck), {}).IgnoreError();
}

void Socket::Acknowledge() {
  if (!router_ && peer_.link.untold() > 0) TellHeard("", peer_);
  for (auto& [identity, peer] : peers_) {
    if (peer.link.untold() > 0) TellHeard(identity, peer);
  }
}

bool Socket::delivered() const {
  return peer_.kept.empty() &&
         std::all_of(peers_.begin(), peers_.end(),
                     [](const auto& p) { return p.second.kept.empty(); });
}

absl::StatusOr<std::optional<Frames>> Socket::TryReceive() {
  // Some, so that nobody keeps a thread here with what is not for it.
  for (int i = 0; i < kLinkMessagesAtOnce; ++i) {
    auto frames = ReceiveFrames();
    if (!frames.ok() || !frames->has_value()) return frames;
    std::optional<Frames> message = Take(*std::move(*frames));
    if (message.has_value()) return message;
  }
  return std::optional<Frames>();
}

// The message that is due, if that is what has come.
std::optional<Frames> Socket::Take(Frames frames) {
  const size_t at = router_ ? 1 : 0;
  const std::string identity(router_ ? frames[0].view() : "");
  const auto malformed = [&] {
    frames.resize(at);
    return std::optional<Frames>(std::move(frames));
  };
  std::optional<LinkHeader> header;
  if (frames.size() > at) header = ParseLinkHeader(frames[at].view());
  const bool has_parts = frames.size() > at + 1;
  if (!header.has_value() ||
      has_parts != (header->kind == LinkHeader::Kind::kMessage)) {
    return malformed();
  }
  Peer* const peer = Hear(identity, *header);
  if (peer == nullptr) return std::nullopt;
  const std::optional<Link::News> news = peer->link.OnHeader(*header);
  if (!news.has_value()) return malformed();
  Answer(identity, *peer, header->kind, *news);
  if (!news->deliver) return std::nullopt;
  frames.erase(frames.begin() + static_cast<int64_t>(at));
  for (size_t i = at; i < frames.size(); ++i) {
    bytes_received_ += static_cast<int64_t>(frames[i].size());
    peer->untold_bytes += static_cast<int64_t>(frames[i].size());
  }
  if (peer->link.untold() >= kMaxUntold ||
      peer->untold_bytes >= kMaxUntoldBytes) {
    TellHeard(identity, *peer);
  }
  return frames;
}

void Socket::Answer(absl::string_view identity, Peer& peer,
                    LinkHeader::Kind kind, const Link::News& news) {
  using Kind = LinkHeader::Kind;
  for (size_t i = 0; i < news.acknowledged; ++i) peer.kept.pop_front();
  if (kind == Kind::kResume) {
    Transmit(identity, peer.link.Say(Kind::kResumed), {}).IgnoreError();
  }
  if (kind == Kind::kResume || kind == Kind::kResumed) Resend(identity, peer);
}

absl::StatusOr<std::optional<Frames>> Socket::ReceiveFrames() {
  try {
    Frames frames;
    bool more = true;
    while (more) {
      Frame frame;
      if (!socket_.recv(frame.message_, zmq::recv_flags::dontwait)) {
        return std::optional<Frames>();
      }
      more = frame.message_.more();
      frames.push_back(std::move(frame));
    }
    return std::optional<Frames>(std::move(frames));
  } catch (const zmq::error_t& error) {
    return ErrorOf(error, absl::StrCat("cannot receive on ", endpoint_));
  }
}

absl::Status Wait(absl::Span<Socket* const> sockets, absl::Span<const int> fds,
                  Time deadline) {
  absl::InlinedVector<zmq::pollitem_t, 8> items;
  for (Socket* socket : sockets) {
    items.push_back({socket->socket_.handle(), 0, ZMQ_POLLIN, 0});
  }
  for (int fd : fds) items.push_back({nullptr, fd, ZMQ_POLLIN, 0});
  for (Socket* socket : sockets) {
    if (!socket->monitor_.has_value()) continue;
    items.push_back({socket->monitor_->handle(), 0, ZMQ_POLLIN, 0});
  }
  while (true) {
    // Rounded up: a wait never ends just before its deadline.
    const absl::Duration left = deadline - Now() + absl::Milliseconds(1);
    const int64_t ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(left), 0,
                                           24 * 3600 * 1000);
    try {
      zmq::poll(items.data(), items.size(), std::chrono::milliseconds(ms));
      const zmq::pollitem_t* monitor =
          items.data() + sockets.size() + fds.size();
      for (Socket* socket : sockets) {
        if (!socket->monitor_.has_value()) continue;
        if (monitor++->revents != 0) socket->OnConnected();
      }
      return absl::OkStatus();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) return ErrorOf(error, "cannot wait");
    }
  }
}

absl::Status Wait(absl::Span<Socket* const> sockets,
                  const Cancellation& cancellation, Time deadline) {
  const int fd = cancellation.fd();
  if (absl::Status s = Wait(sockets, {fd}, deadline); !s.ok()) return s;
  return cancellation.status();
}

}  // namespace psring
