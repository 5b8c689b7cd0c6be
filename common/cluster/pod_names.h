// Names in Kubernetes, whose DNS knows a pod once that has an address, and for
// half a minute after it has another the earlier one's.
#ifndef PSRING_COMMON_CLUSTER_POD_NAMES_H_
#define PSRING_COMMON_CLUSTER_POD_NAMES_H_

#include <string>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/net/address.h"
#include "common/net/cancellation.h"

namespace psring {

// Whether this process runs in a pod.
bool InPod();

// Both look the name up again and again, and block until `deadline` at most;
// DEADLINE_EXCEEDED then says which address the name had, or why it had none.

// Until a ZeroMQ listener greets at the address that it has by then.
absl::Status AwaitListener(const HostPort& named, Time deadline,
                           const Cancellation& cancellation);

// Until it has an address of this host.
absl::Status AwaitOwnName(const std::string& host, Time deadline,
                          const Cancellation& cancellation);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_POD_NAMES_H_
