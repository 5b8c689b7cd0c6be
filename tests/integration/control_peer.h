// A test's own hand at the coordinator's port.
#ifndef PSRING_TESTS_INTEGRATION_CONTROL_PEER_H_
#define PSRING_TESTS_INTEGRATION_CONTROL_PEER_H_

#include <string>

#include "protos/cluster.pb.h"

namespace psring {

// Sends one Join from a new connection to 127.0.0.1:`port`; the reason of the
// refusal that comes back. Empty when none comes: a test's failure.
std::string RefusalOf(int port, const proto::Join& join);

// Returns when the job of a ring has its first worker, whose settings all
// others are compared with.
void AwaitFirstRingWorker(int port);

}  // namespace psring

#endif  // PSRING_TESTS_INTEGRATION_CONTROL_PEER_H_
