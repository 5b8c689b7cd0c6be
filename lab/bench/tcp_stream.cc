#include "lab/bench/tcp_stream.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {
namespace {

absl::Status CallFailed(const char* call) {
  return absl::ErrnoToStatus(errno, absl::StrCat("TCP stream: ", call));
}

// A small message does not wait for the next one.
void SendAtOnce(int fd) {
  const int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

// Blocks until `fd` is ready for `events`.
absl::Status AwaitReady(int fd, short events, Time deadline) {
  while (true) {
    const int64_t left = absl::ToInt64Milliseconds(deadline - Now());
    pollfd poller = {fd, events, 0};
    const int ready =
        poll(&poller, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 1000)));
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return CallFailed("poll");
    if (left <= 0) {
      return absl::DeadlineExceededError("TCP stream: the other end is silent");
    }
  }
}

}  // namespace

absl::StatusOr<TcpStream> TcpStream::Connect(const std::string& address,
                                             int port, Time deadline) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const int error =
      getaddrinfo(address.c_str(), absl::StrCat(port).c_str(), &hints, &list);
  if (error != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "TCP stream: address ", address, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list,
                                                             freeaddrinfo);
  TcpStream stream(
      socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (stream.fd_ < 0) return CallFailed("socket");
  if (connect(stream.fd_, list->ai_addr, list->ai_addrlen) != 0 &&
      errno != EINPROGRESS) {
    return CallFailed("connect");
  }
  if (absl::Status s = AwaitReady(stream.fd_, POLLOUT, deadline); !s.ok()) {
    return s;
  }
  SendAtOnce(stream.fd_);
  return stream;
}

TcpStream::~TcpStream() {
  if (fd_ >= 0) close(fd_);
}

absl::Status TcpStream::Send(absl::string_view bytes, Time deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent >= 0) {
      bytes.remove_prefix(static_cast<size_t>(sent));
    } else if (errno == EAGAIN) {
      if (absl::Status s = AwaitReady(fd_, POLLOUT, deadline); !s.ok()) {
        return s;
      }
    } else if (errno != EINTR) {
      return CallFailed("send");
    }
  }
  return absl::OkStatus();
}

bool TcpStream::HasInput() const {
  pollfd poller = {fd_, POLLIN, 0};
  return poll(&poller, 1, 0) > 0;
}

absl::StatusOr<int64_t> TcpStream::Receive(absl::Span<char> bytes,
                                           Time deadline) {
  while (true) {
    const ssize_t size = recv(fd_, bytes.data(), bytes.size(), 0);
    if (size >= 0) return static_cast<int64_t>(size);
    if (errno == EAGAIN) {
      if (absl::Status s = AwaitReady(fd_, POLLIN, deadline); !s.ok()) return s;
    } else if (errno != EINTR) {
      return CallFailed("recv");
    }
  }
}

absl::StatusOr<TcpListener> TcpListener::Create() {
  TcpListener listener(
      socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), 0);
  const bool has_ipv6 = listener.fd_ >= 0;
  if (!has_ipv6) {
    listener.fd_ =
        socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  }
  if (listener.fd_ < 0) return CallFailed("socket");
  sockaddr_in6 any6 = {};  // takes IPv4 as well
  any6.sin6_family = AF_INET6;
  sockaddr_in any4 = {};
  any4.sin_family = AF_INET;
  sockaddr* any = has_ipv6 ? reinterpret_cast<sockaddr*>(&any6)
                           : reinterpret_cast<sockaddr*>(&any4);
  socklen_t size = has_ipv6 ? sizeof(any6) : sizeof(any4);
  if (has_ipv6) {
    const int no = 0;
    setsockopt(listener.fd_, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  }
  if (bind(listener.fd_, any, size) != 0) return CallFailed("bind");
  if (listen(listener.fd_, 1) != 0) return CallFailed("listen");
  if (getsockname(listener.fd_, any, &size) != 0) {
    return CallFailed("getsockname");
  }
  listener.port_ = ntohs(has_ipv6 ? any6.sin6_port : any4.sin_port);
  return listener;
}

TcpListener::~TcpListener() {
  if (fd_ >= 0) close(fd_);
}

absl::StatusOr<TcpStream> TcpListener::Accept(Time deadline) {
  if (absl::Status s = AwaitReady(fd_, POLLIN, deadline); !s.ok()) return s;
  const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  if (fd < 0) return CallFailed("accept");
  SendAtOnce(fd);
  return TcpStream(fd);
}

}  // namespace psring
