// What ZeroMQ's errors are as a Status.
#ifndef PSRING_COMMON_NET_ZMQ_ERROR_H_
#define PSRING_COMMON_NET_ZMQ_ERROR_H_

#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "zmq.hpp"

namespace psring {

// `what` failed: "cannot listen on tcp://10.0.0.1:7000". With the remedy, where
// there is one.
absl::Status ErrorOf(const zmq::error_t& error, absl::string_view what);

// Calls ZeroMQ again while a signal that the thread handles interrupts it,
// which is before it has done anything. Scripts have timers, profilers and
// children.
template <typename Call>
auto Uninterrupted(const Call& call) {
  while (true) {
    try {
      return call();
    } catch (const zmq::error_t& error) {
      if (error.num() != EINTR) throw;
    }
  }
}

}  // namespace psring

#endif  // PSRING_COMMON_NET_ZMQ_ERROR_H_
