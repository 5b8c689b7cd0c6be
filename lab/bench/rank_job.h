// One rank's place in the job of a benchmark: it joins as a worker does, with a
// model that is nothing but a number of floats.
#ifndef PSRING_LAB_BENCH_RANK_JOB_H_
#define PSRING_LAB_BENCH_RANK_JOB_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/job_client.h"
#include "client/model_client.h"
#include "common/clock.h"
#include "common/cluster/cluster_session.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/flat_model.h"
#include "common/net/cancellation.h"
#include "protos/cluster.pb.h"

namespace psring {

struct RankJobOptions {
  ClusterOptions cluster;
  SameHost same_host = SameHost::kAuto;
  RingOptions ring;
  absl::Duration step_timeout = absl::Seconds(60);
  std::string name;          // of the benchmark, which all ranks agree on
  int64_t num_elements = 1;  // of the model
  int64_t num_steps = 1;
  proto::OptimizerSettings optimizer;
};

// Lives on one thread. Blocks as its parts do; every wait ends by the step
// timeout, with an error that names who was waited for.
class RankJob {
 public:
  // Both outlive the job.
  static absl::StatusOr<std::unique_ptr<RankJob>> Join(
      const RankJobOptions& options, Cancellation& cancellation);

  int rank() { return member().job().rank(); }
  int num_ranks() { return member().job().workers_size(); }
  Member& member() { return job_->member(); }
  // The benchmark's elements, cut into tensors, and behind them kAlignElements
  // that are nobody's.
  FlatModel& model() { return *model_; }
  GradientExchange& exchange() { return *exchange_; }
  // One allreduce by itself, in a ring: see ModelClient. Blocks.
  absl::Status AllReduce(absl::Span<float> data, float scale) {
    return client_->AllReduce(data, scale, Deadline());
  }
  Time Deadline() const { return Now() + options_.step_timeout; }

  // Returns on all ranks at one instant of the monotonic clock, which the ranks
  // of a benchmark share as they run on one machine: a barrier's own skew would
  // be as long as a small exchange. That instant is what it returns, and times
  // count from it: where ranks share cores, one may come back late.
  absl::StatusOr<double> AwaitStart();

  // As Member::Leave.
  absl::Status Leave(const absl::Status& result);

 private:
  RankJob(const RankJobOptions& options, Cancellation& cancellation)
      : options_(options), cancellation_(cancellation) {}

  proto::JobSpec Spec() const;
  absl::Status JoinCluster();

  const RankJobOptions options_;
  Cancellation& cancellation_;
  // Declared in the order that worker/worker.cc explains.
  std::optional<FlatModel> model_;
  std::unique_ptr<JobClient> job_;
  std::unique_ptr<ModelClient> client_;
  std::unique_ptr<GradientExchange> exchange_;
  int64_t num_starts_ = 0;
};

}  // namespace psring

#endif  // PSRING_LAB_BENCH_RANK_JOB_H_
