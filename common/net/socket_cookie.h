// The kernel's name for a socket, which outlives its descriptor's number:
// ZeroMQ closes descriptors on threads of its own, and the kernel gives their
// numbers away again.
#ifndef PSRING_COMMON_NET_SOCKET_COOKIE_H_
#define PSRING_COMMON_NET_SOCKET_COOKIE_H_

#include <cstdint>
#include <optional>

#include "absl/functional/function_ref.h"

namespace psring {

// No other socket of this machine has it until the machine stops. Nothing where
// `fd` is no socket. Any thread.
std::optional<uint64_t> SocketCookie(int fd);

// Calls `act` with a descriptor of the socket `cookie` if `fd` still is that
// socket. What `act` does reaches no other socket, whenever ZeroMQ closes `fd`
// (except where no more files can be opened, for some microseconds). False: it
// was closed. Any thread.
bool OnSocket(int fd, uint64_t cookie, absl::FunctionRef<void(int fd)> act);

}  // namespace psring

#endif  // PSRING_COMMON_NET_SOCKET_COOKIE_H_
