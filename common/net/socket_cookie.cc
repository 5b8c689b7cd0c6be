#include "common/net/socket_cookie.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace psring {

std::optional<uint64_t> SocketCookie(int fd) {
  uint64_t cookie = 0;
  socklen_t size = sizeof(cookie);
  if (getsockopt(fd, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) {
    return std::nullopt;
  }
  return cookie;
}

bool OnSocket(int fd, uint64_t cookie, absl::FunctionRef<void(int fd)> act) {
  // Whatever it is a descriptor of, it stays that.
  const int own = fcntl(fd, F_DUPFD_CLOEXEC, 0);
  const bool same = SocketCookie(own < 0 ? fd : own) == cookie;
  if (same) act(own < 0 ? fd : own);
  if (own >= 0) close(own);
  return same;
}

}  // namespace psring
