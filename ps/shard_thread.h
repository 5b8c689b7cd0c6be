// A thread that owns one shard: it listens first, so that its address can be
// told to the job, and serves once the job is known.
#ifndef PSRING_PS_SHARD_THREAD_H_
#define PSRING_PS_SHARD_THREAD_H_

#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/layout.h"
#include "common/net/cancellation.h"
#include "common/net/doorbell.h"
#include "common/net/socket.h"
#include "ps/shard_server.h"

namespace psring {

class ShardThread {
 public:
  // What a shard serves, known once the job is complete.
  struct Assignment {
    ShardServerOptions options;
    Layout layout;
    Ranges ranges;
  };

  // Starts the thread; returns when it listens on `address`. A shard that
  // fails while it serves cancels `cancellation` with the reason.
  static absl::StatusOr<std::unique_ptr<ShardThread>> Start(
      Context& context, const std::string& address, Cancellation& cancellation);

  // Stops and joins.
  ~ShardThread();

  const std::string& endpoint() const { return endpoint_; }
  // For the job's roster: where workers of this host ring.
  int doorbell_fd() const { return doorbell_->write_fd(); }

  // Begins to serve. Call it once.
  void Serve(Assignment assignment);

  // Stops and joins; what it has done.
  ServingStats Stop();

 private:
  explicit ShardThread(Cancellation& cancellation)
      : cancellation_(cancellation) {}
  void Run(Context& context, const std::string& address,
           std::promise<absl::StatusOr<std::string>> bound);
  absl::Status ServeOn(Socket& socket, const Assignment& assignment);

  Cancellation& cancellation_;
  std::string endpoint_;
  std::unique_ptr<Doorbell> doorbell_;  // the thread's own after Start
  Cancellation stop_;
  std::promise<std::unique_ptr<Assignment>> assignment_;
  bool assigned_ = false;
  ServingStats stats_;  // the thread's own until joined
  std::thread thread_;
};

}  // namespace psring

#endif  // PSRING_PS_SHARD_THREAD_H_
