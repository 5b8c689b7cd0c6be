#include "common/net/socket.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {
namespace {

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
    socket.set(zmq::sockopt::reconnect_ivl_max, 1000);
    if (type == zmq::socket_type::router) {
      socket.set(zmq::sockopt::router_mandatory, true);
    }
    return std::unique_ptr<Socket>(new Socket(std::move(socket)));
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
    (*socket)->socket_.connect(endpoint);
    (*socket)->endpoint_ = endpoint;
  } catch (const zmq::error_t& error) {
    return ErrorOf(error, absl::StrCat("cannot connect to ", endpoint));
  }
  return socket;
}

absl::Status Socket::Send(Frames frames) {
  try {
    for (size_t i = 0; i < frames.size(); ++i) {
      const size_t size = frames[i].size();
      const bool last = i + 1 == frames.size();
      socket_.send(frames[i].message_,
                   last ? zmq::send_flags::none : zmq::send_flags::sndmore);
      bytes_sent_ += static_cast<int64_t>(size);
    }
    return absl::OkStatus();
  } catch (const zmq::error_t& error) {
    return ErrorOf(error, absl::StrCat("cannot send on ", endpoint_));
  }
}

absl::StatusOr<std::optional<Frames>> Socket::TryReceive() {
  try {
    Frames frames;
    bool more = true;
    while (more) {
      Frame frame;
      if (!socket_.recv(frame.message_, zmq::recv_flags::dontwait)) {
        return std::optional<Frames>();
      }
      bytes_received_ += static_cast<int64_t>(frame.size());
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
  while (true) {
    // Rounded up: a wait never ends just before its deadline.
    const absl::Duration left = deadline - Now() + absl::Milliseconds(1);
    const int64_t ms = std::clamp<int64_t>(absl::ToInt64Milliseconds(left), 0,
                                           24 * 3600 * 1000);
    try {
      zmq::poll(items.data(), items.size(), std::chrono::milliseconds(ms));
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
