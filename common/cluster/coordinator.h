// The loop that runs the membership, on a thread of its own inside one process
// of the job.
#ifndef PSRING_COMMON_CLUSTER_COORDINATOR_H_
#define PSRING_COMMON_CLUSTER_COORDINATOR_H_

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/cluster/membership.h"
#include "common/net/address.h"
#include "common/net/cancellation.h"
#include "common/net/socket.h"
#include "protos/cluster.pb.h"

namespace psring {

// Is shown the job about once a second, and when it is over, by the
// coordinator's thread, which it must not keep waiting.
using CoordinatorWatch = std::function<void(Time, const proto::JobView&)>;

class Coordinator {
 public:
  // Listens on `address` (its host must be one of this machine's; port 0: the
  // system chooses) and begins to form the job, which it gives a random epoch
  // where the options have none. `also`: numeric addresses at which it
  // listens, too, on the same port. `watch` may be null, else outlives this.
  // Does not block.
  static absl::StatusOr<std::unique_ptr<Coordinator>> Start(
      Context& context, const HostPort& address, MembershipOptions options,
      CoordinatorWatch watch = nullptr,
      const std::vector<std::string>& also = {});

  // Stops once the job is over; if it is not, every process is told that its
  // coordinator has gone, or what EndsBecause has said. Joins the thread.
  ~Coordinator();

  // "tcp://10.0.0.1:7000", with the port that was chosen.
  const std::string& endpoint() const { return endpoint_; }
  // What has ended the job, if it is not over when this goes. For the thread
  // that destroys this.
  void EndsBecause(std::string reason) { reason_ = std::move(reason); }
  // Whether any process has joined so far. From any thread.
  bool anyone_joined() const { return anyone_joined_; }

 private:
  Coordinator() = default;
  void Run(Socket& socket, const MembershipOptions& options,
           const CoordinatorWatch& watch);

  std::string endpoint_;
  std::atomic<bool> anyone_joined_ = false;
  Cancellation stop_;
  std::string reason_;  // read once stop_ is cancelled
  std::thread thread_;
};

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_COORDINATOR_H_
