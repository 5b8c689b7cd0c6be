// Which address this host is reached at.
#ifndef PSRING_COMMON_NET_ADDRESS_H_
#define PSRING_COMMON_NET_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace psring {

struct HostPort {
  std::string host;
  int port = 0;  // 0: the system chooses
};

// "hostA:7000", "10.0.0.1:7000", "[::1]:7000". INVALID_ARGUMENT says what is
// wrong with any other text.
absl::StatusOr<HostPort> ParseHostPort(absl::string_view text);
std::string ToString(const HostPort& address);

// The same of a socket's endpoint, "tcp://10.0.0.1:7000".
absl::StatusOr<HostPort> ParseEndpoint(absl::string_view endpoint);

// The numeric address of a name; one of IPv4 where this host has a route to it.
// May ask DNS.
absl::StatusOr<std::string> Resolve(const std::string& host);

bool IsLoopback(absl::string_view numeric_address);

// Whether `host` is a name, other than localhost, that is a loopback address
// here. Debian makes a host's own name 127.0.1.1 in its /etc/hosts; no other
// host reaches that.
bool IsLoopbackName(const std::string& host);

// Whether `host` is 0.0.0.0 or ::, all addresses of whoever listens there, and
// none that others can connect to.
bool IsAnyAddress(const std::string& host);

// INVALID_ARGUMENT: IsAnyAddress(host).
absl::Status CheckIsOneAddress(const std::string& host);

// "10.0.0.1", "::1", "fe80::1%eth0".
bool IsNumericAddress(absl::string_view text);

// Ports to listen on; 0: the system chooses.
struct PortRange {
  int first = 0;
  int last = 0;
};

// "41000-41099"; "" is 0. INVALID_ARGUMENT names the text.
absl::StatusOr<PortRange> ParsePortRange(absl::string_view text);

struct AddressWish {
  std::string advertise = {};         // an address or name to use as it is
  std::string interface = {};         // e.g. "eth0"
  std::string coordinator_host = {};  // the default: the route to it
  // Where coordinator_host IsLoopbackName: this host's address on the way to
  // others, if it has just one, in place of a loopback address.
  bool reachable = false;
};

struct AdvertisedAddress {
  std::string address;  // numeric
  std::string reason;   // "the route to 10.0.0.1", for the log
};

// --advertise if given (INVALID_ARGUMENT: it is none of this host's), else the
// interface's address, else the local end of the route to the coordinator (see
// AddressWish; INVALID_ARGUMENT as of CheckIsOneAddress), else (no coordinator)
// loopback.
absl::StatusOr<AdvertisedAddress> ChooseAdvertised(const AddressWish& wish);

// Where a coordinator listens that has this name, in a process that advertises
// `advertised`.
struct ListeningAddresses {
  HostPort at;  // numeric
  // Others of this host's that the name has: those of more interfaces, of which
  // another process may take any, or the loopback address that it is here
  // alone.
  std::vector<std::string> also;
};
absl::StatusOr<ListeningAddresses> WhereToListen(const HostPort& named,
                                                 const std::string& advertised);

// The interface that has this address (numeric); empty: none has.
std::string InterfaceOf(absl::string_view address);

// A port of 127.0.0.1 that is free now, for somebody who cannot choose one;
// 0: none.
int FreePort();

// This host's name.
std::string HostName();

}  // namespace psring

#endif  // PSRING_COMMON_NET_ADDRESS_H_
