#include "common/net/greeting.h"

#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/net/address.h"

namespace psring {
namespace {

// ZMTP's greeting (rfc.zeromq.org/spec/23): a signature, the version, the
// mechanism's name and zeros, a rest. Each side goes on when the other has.
constexpr char kOurs[] = "\xff\0\0\0\0\0\0\0\1\x7f\3\0";
constexpr size_t kOursBytes = sizeof(kOurs) - 1;
constexpr size_t kMechanismAt = kOursBytes;
constexpr size_t kMechanismBytes = 20;

bool AwaitEvent(int fd, short event, Time deadline) {
  pollfd item = {fd, event, 0};
  const int64_t ms = absl::ToInt64Milliseconds(deadline - Now());
  return poll(&item, 1, static_cast<int>(std::max<int64_t>(ms, 0))) == 1;
}

// What a connection meets.
struct Meeting {
  int error = ETIMEDOUT;  // of connecting; 0: it has succeeded
  std::optional<std::string> mechanism;
};

// `fd`: non-blocking. Returns 0 or errno.
int Connect(int fd, const addrinfo& to, Time deadline) {
  if (connect(fd, to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!AwaitEvent(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

std::optional<std::string> MechanismOf(int fd, Time deadline) {
  if (send(fd, kOurs, kOursBytes, MSG_NOSIGNAL) != kOursBytes) {
    return std::nullopt;
  }
  std::string greeting;
  while (greeting.size() < kMechanismAt + kMechanismBytes) {
    char bytes[64];
    if (!AwaitEvent(fd, POLLIN, deadline)) return std::nullopt;
    const ssize_t size = recv(fd, bytes, sizeof(bytes), 0);
    if (size <= 0) return std::nullopt;
    greeting.append(bytes, size);
  }
  if (greeting[0] != kOurs[0]) return std::nullopt;
  const std::string name = greeting.substr(kMechanismAt, kMechanismBytes);
  return name.substr(0, name.find('\0'));
}

Meeting Meet(const std::string& endpoint, absl::Duration patience) {
  const Time deadline = Now() + patience;
  const auto address = ParseEndpoint(endpoint);
  if (!address.ok()) return {};
  const auto host = Resolve(address->host);
  if (!host.ok()) return {};
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* raw = nullptr;
  if (getaddrinfo(host->c_str(), absl::StrCat(address->port).c_str(), &hints,
                  &raw) != 0) {
    return {};
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> to(raw, freeaddrinfo);
  const int fd =
      socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return {errno, std::nullopt};
  Meeting meeting = {Connect(fd, *to, deadline), std::nullopt};
  if (meeting.error == 0) meeting.mechanism = MechanismOf(fd, deadline);
  close(fd);
  return meeting;
}

}  // namespace

std::optional<std::string> MechanismAt(const std::string& endpoint,
                                       absl::Duration patience) {
  return Meet(endpoint, patience).mechanism;
}

std::string DescribeListener(const std::string& endpoint,
                             absl::Duration patience) {
  const Meeting meeting = Meet(endpoint, patience);
  switch (meeting.error) {
    case 0:
      return meeting.mechanism.has_value()
                 ? "something listens there that speaks ZeroMQ, but not as a "
                   "coordinator does"
                 : "something listens there that is stopped, or is no process "
                   "of psring's";
    case ECONNREFUSED:
      return "nothing listens there (connection refused)";
    case ETIMEDOUT:
      return "no connection comes about (its host is down, or a firewall drops "
             "what comes)";
    default:
      return absl::StrCat("a connection fails: ", strerror(meeting.error));
  }
}

}  // namespace psring
