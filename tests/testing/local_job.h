// A whole job inside one test: real coordinator, real sockets on loopback,
// every process a thread with its own context.
#ifndef PSRING_TESTS_TESTING_LOCAL_JOB_H_
#define PSRING_TESTS_TESTING_LOCAL_JOB_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "client/job_client.h"
#include "client/model_client.h"
#include "common/cluster/coordinator.h"
#include "common/cluster/member.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/flat_model.h"
#include "common/net/cancellation.h"
#include "common/net/keys.h"
#include "common/net/socket.h"
#include "protos/cluster.pb.h"
#include "ring/nccl/nccl_api.h"
#include "tests/testing/soon.h"

namespace psring {

struct LocalJobOptions {
  proto::JobSpec spec;  // its mode decides the topology
  int num_workers = 1;
  int num_servers = 1;
  int shard_threads = 1;
  SameHost same_host = SameHost::kAuto;
  // Whether servers let themselves be reached; they map workers all the same.
  bool servers_publish = true;
  // Of a worker by its turn to start, where it differs.
  std::function<SameHost(int index)> same_host_of = nullptr;
  absl::Duration step_timeout = absl::Seconds(60);
  std::optional<Secret> secret = {};  // nothing: no keys
  bool require_encryption = false;
  // Of a worker by its turn to start: what sums within its host. The body then
  // connects `client` itself, with its GPU.
  std::function<std::optional<NcclApi>(int index)> nccl_of = nullptr;
  // Of a worker by its turn to start: its host's name.
  std::function<std::string(int index)> host_of = nullptr;
};

// One worker: what the trainer would hold.
struct LocalWorker {
  explicit LocalWorker(FlatModel m) : model(std::move(m)) {}

  FlatModel model;
  Context context;  // a test's own; the job has another
  Cancellation cancellation;
  std::unique_ptr<JobClient> job;
  std::unique_ptr<ModelClient> client;
  Member* member = nullptr;  // the job's
  std::unique_ptr<GradientExchange> exchange;
  int rank = -1;
  int index = -1;  // its turn to start
};

// A spec of a few awkward tensors in several buckets.
proto::JobSpec SmallSpec(proto::Mode mode, proto::Sync sync);

// Runs `body` once a worker, each on its own thread, then lets every process
// leave. Returns each server's result, then each worker's: OK, or the error of
// its body or of joining.
std::vector<absl::Status> RunLocalJob(
    const LocalJobOptions& options,
    const std::function<absl::Status(LocalWorker&)>& body);

// A body that fills rank 0's parameters from a seed, joins, and makes
// `num_steps` steps with gradients that depend on (rank, step, element);
// finals[rank] receives the parameters.
std::function<absl::Status(LocalWorker&)> TrainBody(
    int num_steps, std::vector<std::vector<float>>* finals);

// The gradients of TrainBody, written into the model.
void FillGradients(LocalWorker& worker, int64_t step);

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_LOCAL_JOB_H_
