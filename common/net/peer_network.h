// Where a connection comes from.
#ifndef PSRING_COMMON_NET_PEER_NETWORK_H_
#define PSRING_COMMON_NET_PEER_NETWORK_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace psring {

// An IPv4 address, or the /64 network of an IPv6 address: a host can have all
// addresses of its /64 (RFC 4291), so no single one says who it is.
struct PeerNetwork {
  bool v4 = true;
  uint64_t bits = 0;  // the address, or its first half, as a number

  auto operator<=>(const PeerNetwork&) const = default;
};

// Of the other end of the TCP connection `fd`, also after that has hung up;
// nothing where `fd` is none.
std::optional<PeerNetwork> NetworkOf(int fd);

// At which port the TCP socket `fd` is, on this host; 0 where it is none.
int LocalPort(int fd);

// "10.0.0.7", "2001:db8:0:1::/64".
std::string Text(const PeerNetwork& network);

}  // namespace psring

#endif  // PSRING_COMMON_NET_PEER_NETWORK_H_
