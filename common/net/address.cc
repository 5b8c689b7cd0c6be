#include "common/net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace psring {
namespace {

std::string Numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = "";
  getnameinfo(address, size, text, sizeof(text), nullptr, 0, NI_NUMERICHOST);
  return text;
}

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

absl::StatusOr<AddressList> Lookup(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  const int rc = getaddrinfo(host.c_str(), "1", &hints, &found);
  if (rc != 0) {
    return absl::NotFoundError(absl::StrCat(
        "cannot resolve host '", host, "': ", gai_strerror(rc),
        ". Give a name that this host can resolve, or a numeric address"));
  }
  return AddressList(found, freeaddrinfo);
}

// An interface's name, or its number.
bool IsZone(absl::string_view text) {
  return !text.empty() && text.size() < IF_NAMESIZE &&
         absl::c_all_of(text, [](char c) {
           return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
                  c == '_' || c == '.' || c == '-';
         });
}

// The local end of the route to an address; nothing: there is none, as errno
// says. A UDP socket's connect sends nothing; it only asks the routing table.
std::optional<std::string> LocalEnd(const addrinfo& to) {
  const int fd = socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_storage local = {};
  socklen_t size = sizeof(local);
  const bool ok =
      fd >= 0 && connect(fd, to.ai_addr, to.ai_addrlen) == 0 &&
      getsockname(fd, reinterpret_cast<sockaddr*>(&local), &size) == 0;
  const int error = errno;
  if (fd >= 0) close(fd);
  errno = error;
  if (!ok) return std::nullopt;
  return Numeric(reinterpret_cast<sockaddr*>(&local), size);
}

// IPv4 first, of those that this host has a route to: a name may have addresses
// of both kinds where a host speaks only one.
const addrinfo* Preferred(const addrinfo* list) {
  for (const bool v4 : {true, false}) {
    for (const addrinfo* a = list; a != nullptr; a = a->ai_next) {
      if ((a->ai_family == AF_INET) == v4 && LocalEnd(*a).has_value()) return a;
    }
  }
  return list;
}

// In the order in which they are preferred.
enum class Kind { kV4, kV6, kV6OfOneLink };

Kind KindOf(const sockaddr* address) {
  if (address->sa_family == AF_INET) return Kind::kV4;
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  return IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) ? Kind::kV6OfOneLink : Kind::kV6;
}

struct Interface {
  std::string name;
  std::string address;  // numeric
  Kind kind;
};

// One for each address of each interface; preferred ones first.
absl::StatusOr<std::vector<Interface>> Interfaces() {
  ifaddrs* raw = nullptr;
  if (getifaddrs(&raw) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot list the interfaces: ", strerror(errno)));
  }
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(raw, freeifaddrs);
  std::vector<Interface> interfaces;
  for (const ifaddrs* i = list.get(); i != nullptr; i = i->ifa_next) {
    if (i->ifa_addr == nullptr) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    interfaces.push_back(
        {i->ifa_name,
         Numeric(i->ifa_addr, family == AF_INET ? sizeof(sockaddr_in)
                                                : sizeof(sockaddr_in6)),
         KindOf(i->ifa_addr)});
  }
  absl::c_stable_sort(interfaces, [](const Interface& a, const Interface& b) {
    return a.kind < b.kind;
  });
  return interfaces;
}

absl::StatusOr<std::string> AddressOfInterface(const std::string& name) {
  const auto interfaces = Interfaces();
  if (!interfaces.ok()) return interfaces.status();
  std::vector<std::string> known;
  for (const Interface& interface : *interfaces) {
    if (interface.name == name) return interface.address;
    if (!absl::c_linear_search(known, interface.name)) {
      known.push_back(interface.name);
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--interface=", name,
      " (interface= in Python): no such interface with an address. This host "
      "has: ",
      absl::StrJoin(known, ", ")));
}

absl::StatusOr<std::string> LocalEndOfRoute(const std::string& host) {
  auto list = Lookup(host);
  if (!list.ok()) return list.status();
  const auto local = LocalEnd(*Preferred(list->get()));
  if (local.has_value()) return *local;
  if (errno == EMFILE) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot look for the route to host '", host, "': ", strerror(errno),
        ". Raise the limit of open files (ulimit -n)"));
  }
  return absl::UnavailableError(
      absl::StrCat("no route to host '", host, "': ", strerror(errno)));
}

// This host's address on the way to others; empty: it has none, or several of
// which none is on a default route.
std::string AddressForOthers() {
  // Of nobody (RFC 5737, RFC 3849).
  for (const char* far : {"192.0.2.1", "2001:db8::1"}) {
    const auto on_route = LocalEndOfRoute(far);
    if (on_route.ok()) return *on_route;
  }
  const auto interfaces = Interfaces();
  if (!interfaces.ok()) return "";
  for (const Kind kind : {Kind::kV4, Kind::kV6}) {
    std::vector<std::string> found;
    for (const Interface& interface : *interfaces) {
      if (interface.kind == kind && !IsLoopback(interface.address)) {
        found.push_back(interface.address);
      }
    }
    if (!found.empty()) return found.size() == 1 ? found.front() : "";
  }
  return "";
}

// INVALID_ARGUMENT: nobody can listen there, as this address (numeric) is none
// of this host's.
absl::Status CheckIsOfThisHost(const std::string& address) {
  auto list = Lookup(address);
  if (!list.ok()) return list.status();
  const addrinfo& one = **list;
  sockaddr_storage at = {};
  memcpy(&at, one.ai_addr, one.ai_addrlen);
  // Any port; that of IPv6 lies at the same place.
  reinterpret_cast<sockaddr_in*>(&at)->sin_port = 0;
  const int socket = ::socket(one.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return absl::OkStatus();  // listening says what is wrong
  const bool refused =
      bind(socket, reinterpret_cast<sockaddr*>(&at), one.ai_addrlen) != 0 &&
      errno == EADDRNOTAVAIL;
  close(socket);
  if (!refused) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--advertise (PSRING_ADVERTISE): ", address,
                   " is no address of this host, so nobody can listen there. "
                   "Give one that it has"));
}

}  // namespace

absl::StatusOr<HostPort> ParseHostPort(absl::string_view text) {
  const size_t colon = text.rfind(':');
  HostPort result;
  if (colon == absl::string_view::npos || colon == 0 ||
      !absl::c_all_of(text.substr(colon + 1), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text.substr(colon + 1), &result.port) ||
      result.port < 0 || result.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is not HOST:PORT, e.g. 10.0.0.1:7000"));
  }
  absl::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  } else if (absl::StrContains(host, ':')) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", text, "': an IPv6 address goes in brackets, [::1]:7000"));
  }
  const auto is_no_part = [](char c) {
    return !absl::ascii_isgraph(c) || c == '[' || c == ']';
  };
  if (absl::c_any_of(host, is_no_part)) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", absl::CHexEscape(text),
                     "': what is before the port is no host's name"));
  }
  result.host = std::string(host);
  return result;
}

absl::StatusOr<PortRange> ParsePortRange(absl::string_view text) {
  if (text.empty()) return PortRange();
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(text, absl::MaxSplits('-', 1));
  PortRange ports;
  if (!absl::SimpleAtoi(ends.first, &ports.first) ||
      !absl::SimpleAtoi(ends.second, &ports.last) || ports.first < 1 ||
      ports.first > ports.last || ports.last > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", text, "' is no range of ports, e.g. 41000-41099"));
  }
  return ports;
}

absl::StatusOr<HostPort> ParseEndpoint(absl::string_view endpoint) {
  if (!absl::ConsumePrefix(&endpoint, "tcp://")) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", endpoint, "' is not tcp://HOST:PORT"));
  }
  return ParseHostPort(endpoint);
}

std::string ToString(const HostPort& address) {
  const bool v6 = absl::StrContains(address.host, ':');
  return absl::StrCat(v6 ? "[" : "", address.host, v6 ? "]:" : ":",
                      address.port);
}

absl::StatusOr<std::string> Resolve(const std::string& host) {
  auto list = Lookup(host);
  if (!list.ok()) return list.status();
  const addrinfo* best = Preferred(list->get());
  return Numeric(best->ai_addr, best->ai_addrlen);
}

bool IsNumericAddress(absl::string_view text) {
  const std::vector<std::string> parts =
      absl::StrSplit(text, absl::MaxSplits('%', 1));
  in6_addr bytes;
  if (parts.size() == 1 && inet_pton(AF_INET, parts[0].c_str(), &bytes) == 1) {
    return true;
  }
  return inet_pton(AF_INET6, parts[0].c_str(), &bytes) == 1 &&
         (parts.size() == 1 || IsZone(parts[1]));
}

bool IsAnyAddress(const std::string& host) {
  in_addr v4;
  in6_addr v6;
  return (inet_pton(AF_INET, host.c_str(), &v4) == 1 &&
          v4.s_addr == INADDR_ANY) ||
         (inet_pton(AF_INET6, host.c_str(), &v6) == 1 &&
          IN6_IS_ADDR_UNSPECIFIED(&v6));
}

absl::Status CheckIsOneAddress(const std::string& host) {
  if (!IsAnyAddress(host)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(host,
                   " is no address that others can reach a coordinator at: "
                   "name this host's own"));
}

bool IsLoopback(absl::string_view numeric_address) {
  return absl::StartsWith(numeric_address, "127.") || numeric_address == "::1";
}

bool IsLoopbackName(const std::string& host) {
  if (IsNumericAddress(host) || absl::StrContains(host, "localhost")) {
    return false;
  }
  const auto numeric = Resolve(host);
  return numeric.ok() && IsLoopback(*numeric);
}

absl::StatusOr<AdvertisedAddress> ChooseAdvertised(const AddressWish& wish) {
  const std::string& coordinator = wish.coordinator_host;
  absl::StatusOr<std::string> address;
  std::string reason;
  if (!wish.advertise.empty()) {
    address = Resolve(wish.advertise);
    if (address.ok()) {
      if (absl::Status s = CheckIsOfThisHost(*address); !s.ok()) return s;
    }
    reason = "--advertise";
  } else if (!wish.interface.empty()) {
    address = AddressOfInterface(wish.interface);
    reason = absl::StrCat("the address of ", wish.interface);
  } else if (!coordinator.empty()) {
    if (absl::Status s = CheckIsOneAddress(coordinator); !s.ok()) return s;
    const bool passes_loopback = wish.reachable && IsLoopbackName(coordinator);
    std::string others = passes_loopback ? AddressForOthers() : "";
    if (others.empty()) {
      address = LocalEndOfRoute(coordinator);
      reason = absl::StrCat("the route to ", coordinator);
    } else {
      address = std::move(others);
      reason = absl::StrCat("for other hosts; ", coordinator,
                            " is a loopback address on this host");
    }
  } else {
    address = "127.0.0.1";
    reason = "no coordinator on another host is named";
  }
  if (!address.ok()) return address.status();
  return AdvertisedAddress{*address, reason};
}

absl::StatusOr<ListeningAddresses> WhereToListen(
    const HostPort& named, const std::string& advertised) {
  auto list = Lookup(named.host);
  if (!list.ok()) return list.status();
  const addrinfo* best = Preferred(list->get());
  const std::string preferred = Numeric(best->ai_addr, best->ai_addrlen);
  if (IsLoopback(preferred)) {
    // Nothing else: nobody else is to reach it, or only where it advertises.
    const bool known_here_alone = IsLoopbackName(named.host);
    return known_here_alone && !IsLoopback(advertised)
               ? ListeningAddresses{{advertised, named.port}, {preferred}}
               : ListeningAddresses{{preferred, named.port}, {}};
  }
  std::vector<std::string> own;
  for (const addrinfo* a = list->get(); a != nullptr; a = a->ai_next) {
    std::string host = Numeric(a->ai_addr, a->ai_addrlen);
    if (InterfaceOf(host).empty() || absl::c_linear_search(own, host)) continue;
    own.insert(host == preferred ? own.begin() : own.end(), std::move(host));
  }
  // Of none of this host's, listening says what is wrong.
  if (own.empty()) own = {preferred};
  return ListeningAddresses{{own.front(), named.port},
                            {own.begin() + 1, own.end()}};
}

std::string InterfaceOf(absl::string_view address) {
  const auto interfaces = Interfaces();
  if (!interfaces.ok()) return "";
  for (const Interface& interface : *interfaces) {
    if (interface.address == address) return interface.name;
  }
  return "";
}

int FreePort() {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return 0;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* any = reinterpret_cast<sockaddr*>(&address);
  const bool bound =
      bind(socket, any, size) == 0 && getsockname(socket, any, &size) == 0;
  close(socket);
  return bound ? ntohs(address.sin_port) : 0;
}

std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace psring
