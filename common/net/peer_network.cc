#include "common/net/peer_network.h"

#include <arpa/inet.h>
#include <endian.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

namespace psring {

std::optional<PeerNetwork> NetworkOf(int fd) {
  // getpeername() knows no peer that has hung up. This wants no more bytes than
  // the address has.
  sockaddr_storage address = {};
  socklen_t v6_size = sizeof(sockaddr_in6), v4_size = sizeof(sockaddr_in);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &address, &v6_size) != 0 &&
      getsockopt(fd, SOL_SOCKET, SO_PEERNAME, &address, &v4_size) != 0) {
    return std::nullopt;
  }
  if (address.ss_family == AF_INET) {
    sockaddr_in v4;
    std::memcpy(&v4, &address, sizeof(v4));
    return PeerNetwork{true, ntohl(v4.sin_addr.s_addr)};
  }
  if (address.ss_family != AF_INET6) return std::nullopt;
  sockaddr_in6 v6;
  std::memcpy(&v6, &address, sizeof(v6));
  uint64_t words[2];
  std::memcpy(words, &v6.sin6_addr, sizeof(words));
  // An IPv6 socket shows IPv4 peers so.
  if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
    return PeerNetwork{true, be64toh(words[1]) & 0xffffffff};
  }
  return PeerNetwork{false, be64toh(words[0])};
}

int LocalPort(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return 0;
  }
  // Both kinds of address have it at the same place.
  sockaddr_in internet;
  std::memcpy(&internet, &address, sizeof(internet));
  const bool is_internet =
      address.ss_family == AF_INET || address.ss_family == AF_INET6;
  return is_internet ? ntohs(internet.sin_port) : 0;
}

std::string Text(const PeerNetwork& network) {
  char text[INET6_ADDRSTRLEN] = "";
  if (network.v4) {
    const in_addr v4 = {htonl(static_cast<uint32_t>(network.bits))};
    return inet_ntop(AF_INET, &v4, text, sizeof(text));
  }
  in6_addr v6 = {};
  const uint64_t first = htobe64(network.bits);
  std::memcpy(&v6, &first, sizeof(first));
  inet_ntop(AF_INET6, &v6, text, sizeof(text));
  return std::string(text) + "/64";
}

}  // namespace psring
