// A job's parameter servers in processes that their users start as workers: one
// process for each (RunServer), or threads beside a worker's own.
#ifndef PSRING_CLIENT_OWN_SERVERS_H_
#define PSRING_CLIENT_OWN_SERVERS_H_

#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/net/cancellation.h"
#include "ps/server.h"  // IWYU pragma: export

namespace psring {

class OwnServers {
 public:
  // `failed` is told on a server's thread what has ended it early. It outlives
  // the servers, as all that it uses does.
  explicit OwnServers(std::function<void(const absl::Status&)> failed)
      : failed_(std::move(failed)) {}
  ~OwnServers() { End(); }

  // Another one, which joins the job on a thread of its own.
  void Start(const ServerOptions& options);
  // Ends those that still serve, and waits for them.
  void End();

 private:
  const std::function<void(const absl::Status&)> failed_;
  // Not the worker's: what ends a server ends the job, which tells the worker.
  Cancellation cancellation_;
  std::vector<std::thread> threads_;
};

}  // namespace psring

#endif  // PSRING_CLIENT_OWN_SERVERS_H_
