// What ZeroMQ's errors are as a Status.
#ifndef PSRING_COMMON_NET_ZMQ_ERROR_H_
#define PSRING_COMMON_NET_ZMQ_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "zmq.hpp"

namespace psring {

// `what` failed: "cannot listen on tcp://10.0.0.1:7000". With the remedy, where
// there is one.
absl::Status ErrorOf(const zmq::error_t& error, absl::string_view what);

}  // namespace psring

#endif  // PSRING_COMMON_NET_ZMQ_ERROR_H_
