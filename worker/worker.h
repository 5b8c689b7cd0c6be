// A worker process: it loads, joins, trains, leaves.
#ifndef PSRING_WORKER_WORKER_H_
#define PSRING_WORKER_WORKER_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "client/model_client.h"
#include "common/cluster/cluster_session.h"
#include "common/model/flat_model.h"
#include "common/net/cancellation.h"
#include "common/net/signals.h"
#include "common/trace/event_file.h"
#include "common/trace/timeline.h"
#include "protos/cluster.pb.h"
#include "worker/run_start.h"
#include "worker/torch/gpu_choice.h"
#include "worker/torch/precision.h"

namespace psring {

struct WorkerOptions {
  ClusterOptions cluster;
  // What all workers agree on; its dataset size, tensors, first step and ring
  // backend are filled in here.
  proto::JobSpec spec;
  std::string data = "digits";  // with its directory
  int threads = 0;  // of libtorch; 0: this host's cores, shared by its workers
  RingOptions ring;
  DeviceWish device;
  Precision precision = Precision::kFp32;
  bool channels_last = false;
  bool deterministic = false;  // on GPUs; CPUs are
  // That prepare the next step's samples; 0: none on CPUs, and on GPUs as the
  // data set needs it.
  int loader_threads = 0;
  bool allow_shared_gpu = false;
  std::string affinity = "auto";
  // What sums in ring mode: "host", "nccl", or "auto": nccl on a GPU.
  std::string ring_backend = "auto";
  std::string host_sum = "auto";
  SameHost same_host = SameHost::kAuto;  // share memory with its processes?
  absl::Duration step_timeout = absl::Seconds(60);
  int stopped_exit_code = 0;    // of a training that SIGTERM has ended early
  StartWish start;              // its directory is absolute
  int64_t checkpoint_keep = 3;  // the newest so many; 0: all
  std::string metrics_dir;      // empty: no metrics
  std::string tensorboard;      // its folder; empty: nothing for it
  TextTableRows flags;          // as they are shown there
  TimelineOptions timeline;
};

// Blocks until the job has ended for all; its result. Errors have been told to
// the coordinator. `cancellation` ends it early; what `soft_stop` asks while it
// trains ends the training of all workers after a step, with a checkpoint.
absl::Status RunWorker(const WorkerOptions& options, Cancellation& cancellation,
                       SoftStop& soft_stop);

}  // namespace psring

#endif  // PSRING_WORKER_WORKER_H_
