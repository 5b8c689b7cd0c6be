// What a process needs to take part in a job: its address, the coordinator
// where it hosts it, its membership. Used by servers and workers alike.
#ifndef PSRING_COMMON_CLUSTER_CLUSTER_SESSION_H_
#define PSRING_COMMON_CLUSTER_CLUSTER_SESSION_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/cluster/coordinator.h"
#include "common/cluster/member.h"
#include "common/cluster/placement.h"
#include "common/cluster/security.h"
#include "common/net/address.h"
#include "common/net/cancellation.h"
#include "common/net/socket.h"
#include "protos/cluster.pb.h"

namespace psring {

struct ClusterOptions {
  Placement placement;
  proto::Mode mode = proto::PARAMETER_SERVER;
  std::string host = HostName();  // as others know this host
  std::string advertise;          // see AddressWish
  std::string interface;
  std::string ports;  // "41000-41099" to listen on; empty: the system chooses
  // Where a hosting process writes the port that its coordinator listens on,
  // atomically; empty: nowhere.
  std::string coordinator_port_file;
  absl::Duration join_timeout = absl::Seconds(60);
  // MembershipOptions' and MemberOptions'.
  absl::Duration heartbeat_timeout = kHeartbeatTimeout;
  // How long this process may work without progress (activity.h) before the job
  // ends with its name; 0: for ever.
  absl::Duration progress_timeout;
  // MemberOptions'.
  std::function<void()> on_hang = nullptr;
  Security security = {};  // of the job
  // Where the process that hosts the coordinator shows the job, and the file of
  // the page's token (common/page/job_page.h); empty: nowhere, no file.
  std::string page;
  std::string page_token_file;
};

class ClusterSession {
 public:
  // Chooses the advertised address and, where this process hosts it, starts the
  // coordinator, which `watch` is for. `context` and `cancellation` outlive the
  // session.
  static absl::StatusOr<std::unique_ptr<ClusterSession>> Start(
      Context& context, Cancellation& cancellation,
      const ClusterOptions& options, CoordinatorWatch watch = nullptr);

  // The numeric address to listen on and to be reached at.
  const std::string& address() const { return address_.address; }

  // Where the coordinator listens, with the port that the system chose.
  const std::string& coordinator_endpoint() const {
    return coordinator_endpoint_;
  }

  // Joins the job; blocks until it is complete.
  absl::Status Join();

  // In place of Join, for a process that cannot take part: ends the job for all
  // with its name and `why`. Blocks until the coordinator has heard, or 2 s.
  void Decline(const absl::Status& why);

  // After Join.
  Member& member() { return *member_; }

 private:
  ClusterSession(Context& context, Cancellation& cancellation,
                 const ClusterOptions& options)
      : context_(context), cancellation_(cancellation), options_(options) {}
  // In a pod of Kubernetes: until the coordinator's name has its address.
  absl::Status AwaitNames();
  // With the job's key, or none where that is allowed.
  absl::Status Secure();
  absl::Status HostCoordinator(CoordinatorWatch watch);
  // How this process joins, and what the coordinator is told of it.
  MemberOptions Introduction() const;

  Context& context_;
  Cancellation& cancellation_;
  ClusterOptions options_;
  AdvertisedAddress address_;
  std::string coordinator_endpoint_;
  std::unique_ptr<Coordinator> coordinator_;  // outlives the member
  std::unique_ptr<Member> member_;
};

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_CLUSTER_SESSION_H_
