// What listens at an address, and what a ZeroMQ listener asks of those that
// connect.
#ifndef PSRING_COMMON_NET_GREETING_H_
#define PSRING_COMMON_NET_GREETING_H_

#include <optional>
#include <string>

#include "absl/time/time.h"

namespace psring {

// The security mechanism ("NULL", "PLAIN", "CURVE") of what listens at
// `endpoint` ("tcp://host:port"), which a ZeroMQ listener says before it knows
// anything of its peer. Nothing where it says none within `patience`: a port
// forward takes the connection, but with nothing behind it greets nobody.
// Blocks meanwhile.
std::optional<std::string> MechanismAt(const std::string& endpoint,
                                       absl::Duration patience);

// What whoever connects to `endpoint`, where nobody has answered as it should,
// meets there: "nothing listens there (connection refused)". Blocks for
// `patience` at most.
std::string DescribeListener(const std::string& endpoint,
                             absl::Duration patience = absl::Seconds(1));

}  // namespace psring

#endif  // PSRING_COMMON_NET_GREETING_H_
