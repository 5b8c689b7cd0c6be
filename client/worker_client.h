// A worker's side of a job, without any framework: it joins, connects the
// exchange of the job's mode, and leaves. The only folder that names both
// topologies is this one; whoever trains (worker/, a benchmark's rank, a test)
// stands on it.
#ifndef PSRING_CLIENT_WORKER_CLIENT_H_
#define PSRING_CLIENT_WORKER_CLIENT_H_

#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/cluster/cluster_session.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/flat_model.h"
#include "common/net/cancellation.h"
#include "common/net/socket.h"
#include "common/trace/timeline.h"
#include "gpu/device.h"
#include "gpu/device_model.h"
#include "protos/cluster.pb.h"
#include "ring/connect_ring.h"
#include "ring/nccl/nccl_api.h"
#include "ring/ring_exchange.h"
#include "ring/ring_listener.h"

namespace psring {

// The host's memory that a job of `spec`, whose tensors are filled in, trains
// in: shared with the processes of this host where `same_host` allows it, with
// room for the optimizer's state where the topology keeps it at the workers.
absl::StatusOr<FlatModel> CreateFlatModel(const proto::JobSpec& spec,
                                          SameHost same_host);

struct ClientOptions {
  ClusterOptions cluster;
  // What all workers agree on, as this one knows it; complete.
  proto::JobSpec spec;
  RingOptions ring = {};
  // Of a job whose ring_backend is "nccl"; see ring_backend.h.
  std::optional<NcclApi> nccl = std::nullopt;
  absl::Duration step_timeout = absl::Seconds(60);
};

// A model in the memory of a GPU. All of it outlives the exchange.
struct GpuModel {
  Device& device;
  DeviceModel& model;
  bool allow_shared_gpu = false;
};

// The trainer's thread's own.
class WorkerClient {
 public:
  // Blocks until the job is complete. `flat` and `cancellation` outlive the
  // client: gradients are sent from where they lie. Errors are Member::Join's,
  // and those of opening a socket.
  static absl::StatusOr<std::unique_ptr<WorkerClient>> Join(
      ClientOptions options, Cancellation& cancellation, FlatModel& flat);

  Member& member() { return session_->member(); }
  // Who takes part, and what all have agreed on.
  const proto::Welcome& job() { return member().job(); }

  // Once, after Join: the exchange of the job's mode, with local steps and
  // compression where the job has them, for the host's memory or, where `gpu`
  // is not null, a GPU's. It must not outlive the client. `timeline` and
  // `track`, of the trainer's thread, may be null. Blocks until the workers of
  // a ring know each other, at most for the step timeout.
  absl::StatusOr<std::unique_ptr<GradientExchange>> Connect(
      Timeline* timeline = nullptr, Track* track = nullptr,
      const GpuModel* gpu = nullptr);

  // One allreduce by itself, between steps; see Communicator. After Connect, in
  // a ring on the hosts only. Blocks.
  absl::Status AllReduce(absl::Span<float> data, float scale,
                         absl::Time deadline);

  // Ends this worker's part of the job: see Member::Leave. After success it
  // waits for as long as two slow steps of the others may take.
  absl::Status Leave(const absl::Status& result);

 private:
  WorkerClient(ClientOptions options, Cancellation& cancellation,
               FlatModel& flat)
      : options_(std::move(options)),
        cancellation_(cancellation),
        flat_(flat) {}

  absl::Status JoinJob();
  absl::StatusOr<std::unique_ptr<GradientExchange>> ConnectTopology(
      Timeline* timeline, Track* track);
  absl::StatusOr<std::unique_ptr<GradientExchange>> ConnectNccl(
      const GpuModel& gpu, Track* track);

  ClientOptions options_;
  Cancellation& cancellation_;
  FlatModel& flat_;
  Context context_;
  std::unique_ptr<ClusterSession> session_;
  // A ring listens before it joins; Connect makes its exchange of it.
  std::unique_ptr<RingListener> listener_;
  RingExchange* ring_ = nullptr;  // the one that was handed out
};

}  // namespace psring

#endif  // PSRING_CLIENT_WORKER_CLIENT_H_
