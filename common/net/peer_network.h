// Where a connection comes from, as far as one host is told from another.
#ifndef PSRING_COMMON_NET_PEER_NETWORK_H_
#define PSRING_COMMON_NET_PEER_NETWORK_H_

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

namespace psring {

// An IPv4 address, or the first half of an IPv6 address: whoever has one IPv6
// address has all that share its /64 prefix (RFC 4291).
struct PeerNetwork {
  bool v4 = true;
  uint64_t bits = 0;  // the address, or its first half, as a number

  auto operator<=>(const PeerNetwork&) const = default;
};

// Of the other end of the TCP connection `fd`; nothing where it is none.
std::optional<PeerNetwork> NetworkOf(int fd);

// "10.0.0.7", "2001:db8:0:1::/64".
std::string Text(const PeerNetwork& network);

}  // namespace psring

#endif  // PSRING_COMMON_NET_PEER_NETWORK_H_
