// A model of a foreign program: its flat memory, on the host or on a GPU, and
// the exchange that fills it.
#ifndef PSRING_PYTHON_CAPI_SCRIPT_MODEL_H_
#define PSRING_PYTHON_CAPI_SCRIPT_MODEL_H_

#include <atomic>
#include <cstdint>
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
#include "client/model_client.h"
#include "common/clock.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/flat_model.h"
#include "gpu/device.h"
#include "gpu/device_model.h"
#include "nlohmann/json.hpp"
#include "protos/cluster.pb.h"
#include "python/capi/rate_check.h"
#include "python/capi/script_gpu.h"
#include "python/capi/script_model_options.h"

namespace psring {

// One thread at a time.
class ScriptModel {
 public:
  // Blocks until all workers and servers have opened it.
  static absl::StatusOr<std::unique_ptr<ScriptModel>> Open(
      JobClient& job, const ScriptModelOptions& options, SameHost same_host,
      absl::Duration step_timeout, const GpuDoor& door = {});

  // {"num_elements", ...}: see psring_model.
  nlohmann::json Describe() const;
  // Flat memory, of the GPU where the model lies on one.
  float* parameters();
  float* gradients();
  // Of the host's memory, what its processes share.
  int64_t shared_bytes() const;
  int64_t step() const { return exchange_->step(); }
  // See psring_updates.
  int64_t updates() const;
  const std::string& id() const { return id_; }

  // One at a time may use the model: false while another call does.
  bool TryUse() { return !in_use_.exchange(true); }
  void EndUse() { in_use_.store(false); }

  // Copies `slots`, none or all of the optimizer's state, num_elements each,
  // for Begin. INVALID_ARGUMENT: another number of them.
  absl::StatusOr<std::vector<FlatBuffer>> CopySlots(
      absl::Span<const float* const> slots) const;
  // Once, before the first step: everybody begins with rank 0's parameters, and
  // with its optimizer state.
  absl::Status Begin(std::vector<FlatBuffer> slots);
  // FAILED_PRECONDITION before Begin, INVALID_ARGUMENT for a bucket that is not
  // there.
  absl::Status Submit(int bucket);
  // Whether that step still waits for gradients of this worker. Any thread.
  bool Owes(int64_t step) const { return step >= owed_step_; }
  // Whether a step waits for every worker's gradients.
  bool waits_for_all() const;
  // Of which step every worker's gradients have to come before that one can
  // end; nothing: of none.
  std::optional<int64_t> StepNeededBy(int64_t step) const;
  absl::Status SetRates(absl::Span<const double> rates);
  // On a GPU: the stream that the program works on from now on; at first the
  // default one. INVALID_ARGUMENT for a model in the host's memory.
  absl::Status SetStream(Stream stream);
  absl::Status Finish();
  // INVALID_ARGUMENT with ssp and async: a step has begun.
  absl::Status Synchronise();
  // INVALID_ARGUMENT: rank 0 has memory for another number of them.
  absl::Status CheckFetch(absl::Span<float* const> slots) const;
  // All workers: rank 0's `slots`, which pass CheckFetch, receive the
  // optimizer's state.
  absl::Status FetchSlots(absl::Span<float* const> slots);
  // All workers. The exchange has ended after it; the memory is still there.
  absl::Status Close();
  // Ends the exchange, before the job's context does; the memory is still
  // there.
  void Disconnect();
  Traffic traffic() const {
    return exchange_ == nullptr ? last_traffic_ : exchange_->traffic();
  }

 private:
  ScriptModel(JobClient& job, std::string id, absl::Duration step_timeout,
              FlatModel flat, std::unique_ptr<Device> device)
      : job_(job),
        id_(std::move(id)),
        step_timeout_(step_timeout),
        rate_check_(job.member(), id_),
        flat_(std::move(flat)),
        device_(std::move(device)),
        submitted_(static_cast<size_t>(flat_.layout.num_buckets())) {}
  Time Deadline() const;
  std::vector<std::string> SlotNames() const;
  absl::Status CheckNumSlots(size_t given) const;
  absl::Status CheckNoStepBegun() const;
  absl::Status AllocateOnGpu(const proto::JobSpec& spec);
  absl::Status Connect(std::optional<NcclApi> nccl, const proto::JobSpec& spec,
                       const GpuDoor& door);

  JobClient& job_;
  const std::string id_;
  const absl::Duration step_timeout_;
  RateCheck rate_check_;
  FlatModel flat_;
  // Null: the model lies on the host. It ends before the host's memory, which
  // its copies may still be on their way to.
  std::unique_ptr<Device> device_;
  std::optional<DeviceModel> on_device_;
  std::unique_ptr<ModelClient> client_;
  std::unique_ptr<GradientExchange> exchange_;
  std::atomic<bool> in_use_ = false;
  bool begun_ = false;
  std::vector<bool> submitted_;         // by bucket: it has gone in this step
  int num_submitted_ = 0;               // of them
  std::atomic<int64_t> owed_step_ = 0;  // the first not submitted in full
  Traffic last_traffic_;                // of an exchange that has ended
  int64_t num_fetches_ = 0;             // names the gathers
};

}  // namespace psring

#endif  // PSRING_PYTHON_CAPI_SCRIPT_MODEL_H_
