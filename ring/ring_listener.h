// The place where a rank is reached by messages: its TcpCommunicator and the
// runner whose tasks use it. It listens before the job is complete, so that the
// job's roster can name it.
#ifndef PSRING_RING_RING_LISTENER_H_
#define PSRING_RING_RING_LISTENER_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/exchange/serial_runner.h"
#include "common/net/cancellation.h"
#include "common/net/socket.h"
#include "ring/tcp_communicator.h"

namespace psring {

// The trainer's thread's own.
class RingListener {
 public:
  // Starts the runner and listens on `address` (numeric), port chosen by the
  // system. References outlive the listener.
  static absl::StatusOr<std::unique_ptr<RingListener>> Create(
      Context& context, const Cancellation& cancellation,
      const std::string& address);

  // For the job's roster.
  const std::string& endpoint() const { return endpoint_; }
  const Cancellation& cancellation() const { return cancellation_; }

  SerialRunner& runner() { return runner_; }
  // Only the runner's tasks use it, except for what any thread may call.
  TcpCommunicator& communicator() { return *communicator_; }

 private:
  explicit RingListener(const Cancellation& cancellation)
      : cancellation_(cancellation),
        runner_(SerialRunner::Where::kOwnThread,
                [this] { communicator_.reset(); }) {}

  const Cancellation& cancellation_;
  std::string endpoint_;
  std::unique_ptr<TcpCommunicator> communicator_;  // used by its tasks
  SerialRunner runner_;  // ends first: it uses all of the above
};

}  // namespace psring

#endif  // PSRING_RING_RING_LISTENER_H_
