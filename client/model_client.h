// A worker's side of one of its job's models, without any framework: it opens
// the model with all the others, and connects the exchange of the job's mode.
// The only folder that names both topologies is this one; whoever trains
// (worker/, a benchmark's rank, other languages, a test) stands on it.
#ifndef PSRING_CLIENT_MODEL_CLIENT_H_
#define PSRING_CLIENT_MODEL_CLIENT_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "client/job_client.h"
#include "common/clock.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/flat_model.h"
#include "common/trace/timeline.h"
#include "gpu/device.h"
#include "gpu/device_model.h"
#include "protos/cluster.pb.h"
#include "ring/connect_ring.h"
#include "ring/nccl/nccl_api.h"
#include "ring/nccl/nccl_communicator.h"
#include "ring/ring_exchange.h"
#include "ring/ring_listener.h"

namespace psring {

// The host's memory that a job of `spec`, whose tensors are filled in, trains
// in: shared with the processes of this host where `same_host` allows it, with
// room for the optimizer's state where the topology keeps it at the workers.
absl::StatusOr<FlatModel> CreateFlatModel(const proto::JobSpec& spec,
                                          SameHost same_host);

struct ModelOptions {
  // Names the model, which is new in the job.
  std::string id = "model";
  // What all workers agree on, as this one knows it; complete.
  proto::JobSpec spec;
  RingOptions ring = {};
  // Of a job whose ring_backend is "nccl", or, with servers, of a worker on a
  // GPU whose gradients NCCL may sum with those of others on its host; see
  // ring_backend.h.
  std::optional<NcclApi> nccl = std::nullopt;
  // Names that worker's GPU on its host: those who have the same one push each
  // their own. Empty: nobody else has it, as its caller knows.
  std::string gpu = "";
  absl::Duration step_timeout = absl::Seconds(60);
};

// A model in the memory of a GPU, with the optimizer's slots where its ring
// backend is "nccl" or it takes local steps. All of it outlives the exchange.
struct GpuModel {
  Device& device;
  DeviceModel& model;
  bool allow_shared_gpu = false;
  // See NcclWatchdogOptions.
  std::function<void(const absl::Status&)> before_abort = nullptr;
};

// The trainer's thread's own.
class ModelClient {
 public:
  // Blocks until all workers and servers have opened the model. `job` and
  // `flat` outlive the client. Errors are OpenModel's, and those of opening a
  // socket.
  static absl::StatusOr<std::unique_ptr<ModelClient>> Open(JobClient& job,
                                                           ModelOptions options,
                                                           FlatModel& flat);

  // Who takes part in this model, and what all have agreed on.
  const proto::Welcome& job() const { return model_; }
  const proto::JobSpec& spec() const { return model_.spec(); }

  // Once: the exchange of the job's mode, with local steps and
  // compression where the job has them, for the host's memory or, where `gpu`
  // is not null, a GPU's. It must not outlive the client. `timeline` and
  // `track`, of the trainer's thread, may be null. Blocks until the workers of
  // a ring know each other, at most for the step timeout.
  absl::StatusOr<std::unique_ptr<GradientExchange>> Connect(
      Timeline* timeline = nullptr, Track* track = nullptr,
      const GpuModel* gpu = nullptr);

  // One allreduce by itself, between steps; see Communicator. After Connect, in
  // a ring on the hosts only. Blocks.
  absl::Status AllReduce(absl::Span<float> data, float scale, Time deadline);

  // All workers call it when nothing of this model is under way; its exchange
  // has ended. Servers let go of the model.
  absl::Status Close(Time deadline);

 private:
  ModelClient(JobClient& job, ModelOptions options, FlatModel& flat)
      : job_(job), options_(std::move(options)), flat_(flat) {}

  absl::StatusOr<std::unique_ptr<GradientExchange>> ConnectTopology(
      Timeline* timeline, Track* track);
  absl::StatusOr<std::unique_ptr<GradientExchange>> ConnectNccl(
      const GpuModel& gpu, Timeline* timeline, Track* track);
  // The exchange through the hosts' memory, for a GPU's where `gpu` is not
  // null.
  absl::StatusOr<std::unique_ptr<GradientExchange>> ConnectHosts(
      const GpuModel* gpu, Timeline* timeline, Track* track);
  // Over the GPUs of that group of workers, of which this is one.
  absl::StatusOr<std::unique_ptr<GradientExchange>> ConnectHostSum(
      const GpuModel& gpu, const std::vector<int>& group, Timeline* timeline,
      Track* track);

  // Gathers are among `ranks`, or all workers, and begin with `gathers`.
  NcclOptions NcclOptionsOf(const GpuModel& gpu, const std::string& gathers,
                            const std::vector<int>& ranks);

  JobClient& job_;
  ModelOptions options_;
  FlatModel& flat_;
  proto::Welcome model_;
  // A ring listens before it is opened; Connect makes its exchange of it.
  std::unique_ptr<RingListener> listener_;
  RingExchange* ring_ = nullptr;  // the one that was handed out
};

}  // namespace psring

#endif  // PSRING_CLIENT_MODEL_CLIENT_H_
