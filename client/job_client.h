// A worker's place in a job, without any framework and without a model: it
// joins, and leaves. What it trains: model_client.h.
#ifndef PSRING_CLIENT_JOB_CLIENT_H_
#define PSRING_CLIENT_JOB_CLIENT_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/cluster/cluster_session.h"
#include "common/net/cancellation.h"
#include "common/net/context.h"
#include "protos/cluster.pb.h"

namespace psring {

class JobClient {
 public:
  // Chooses an address and, where this process hosts it, starts the
  // coordinator. `cancellation` outlives the client.
  static absl::StatusOr<std::unique_ptr<JobClient>> Start(
      const ClusterOptions& options, Cancellation& cancellation);
  // "tcp://10.0.0.1:7000".
  const std::string& coordinator() { return session_->coordinator_endpoint(); }

  // Once: blocks until the job is complete. Errors are Member::Join's. What
  // follows needs it.
  absl::Status Join() { return session_->Join(); }
  // In place of Join: see ClusterSession::Decline.
  void Decline(const absl::Status& why) { session_->Decline(why); }
  // Both steps.
  static absl::StatusOr<std::unique_ptr<JobClient>> Join(
      const ClusterOptions& options, Cancellation& cancellation);

  Member& member() { return session_->member(); }
  // Who takes part.
  const proto::Welcome& job() { return member().job(); }
  // Where this worker listens and is reached.
  const std::string& address() { return session_->address(); }
  Context& context() { return context_; }
  // Whether nothing of this job may travel in the clear.
  bool requires_encryption() const { return requires_encryption_; }
  Cancellation& cancellation() { return cancellation_; }

  // For whoever has done its part while others still work, perhaps for long:
  // the coordinator ends the job of one that dies or hangs.
  static constexpr absl::Duration kAsLongAsTheyWork = absl::Hours(24 * 7);

  // Ends this worker's part of the job: see Member::Leave. After success it
  // waits for the others, at most for `patience`.
  absl::Status Leave(const absl::Status& result,
                     absl::Duration patience = kAsLongAsTheyWork);

 private:
  JobClient(const ClusterOptions& options, Cancellation& cancellation)
      : cancellation_(cancellation),
        requires_encryption_(options.security.require_encryption) {}

  Cancellation& cancellation_;
  const bool requires_encryption_;
  Context context_;
  std::unique_ptr<ClusterSession> session_;
};

}  // namespace psring

#endif  // PSRING_CLIENT_JOB_CLIENT_H_
