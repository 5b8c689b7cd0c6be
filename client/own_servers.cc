#include "client/own_servers.h"

#include "common/process/thread_limit.h"

namespace psring {

void OwnServers::Start(const ServerOptions& options) {
  threads_.emplace_back([this, options] {
    const absl::Status status =
        CatchNoThread([&] { return RunServer(options, cancellation_); });
    if (!status.ok()) failed_(status);
  });
}

void OwnServers::End() {
  cancellation_.Cancel(absl::CancelledError("the worker has left"));
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace psring
