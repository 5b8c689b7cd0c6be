#include "ring/ring_listener.h"

#include <utility>

namespace psring {

absl::StatusOr<std::unique_ptr<RingListener>> RingListener::Create(
    Context& context, const Cancellation& cancellation,
    const std::string& address) {
  std::unique_ptr<RingListener> listener(new RingListener(cancellation));
  absl::Status status = listener->runner_.Run([&]() -> absl::Status {
    auto communicator = TcpCommunicator::Create(context, cancellation, address);
    if (!communicator.ok()) return communicator.status();
    listener->communicator_ = *std::move(communicator);
    listener->endpoint_ = listener->communicator_->endpoint();
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  return listener;
}

}  // namespace psring
