// Local SGD (Stich 2019): every worker takes k optimizer steps on its own, then
// all take the mean of their parameters: their canonical sum times 1/N, which
// any topology gives with the same bits.
//
// It wraps an exchange that was made for a job of local steps: what that one
// sums are parameters, written to where gradients lie, and what it applies to
// their mean is Optimizer::ForMean's assignment. Optimizer state stays at each
// worker and is not averaged. Parameters are averaged after every k-th step of
// the job and where the seam promises the same to all (Synchronise); in between
// every worker has its own. Nothing is sent while backward runs.
#ifndef PSRING_COMMON_EXCHANGE_LOCAL_STEPS_H_
#define PSRING_COMMON_EXCHANGE_LOCAL_STEPS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/exchange/forwarding_exchange.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "protos/cluster.pb.h"

namespace psring {

// The model of one worker and its optimizer, where it takes its own steps: in
// the host's memory (HostSteps), or on a GPU (gpu/device_steps.h).
class OwnSteps {
 public:
  virtual ~OwnSteps() = default;

  // `slots` become the optimizer's state; what they lack is zero. Blocks.
  virtual absl::Status SetState(std::vector<FlatBuffer> slots,
                                Time deadline) = 0;
  // The `update`-th update of the parameters by the gradients.
  virtual absl::Status Step(int64_t update, double rate) = 0;
  // Puts the parameters where the exchange looks for gradients.
  virtual absl::Status OfferParameters() = 0;
  // As GradientExchange::SaveState, of the parameters and the state. Blocks.
  virtual absl::StatusOr<proto::SavedState> Save(const std::string& directory,
                                                 Time deadline) = 0;
  // As GradientExchange::FetchSlots. Blocks.
  virtual absl::Status FetchSlots(absl::Span<float* const> slots,
                                  Time deadline) = 0;
};

class HostSteps : public OwnSteps {
 public:
  // `model` outlives this.
  static absl::StatusOr<std::unique_ptr<OwnSteps>> Create(
      const proto::OptimizerSettings& optimizer, FlatModel& model);

  absl::Status SetState(std::vector<FlatBuffer> slots, Time deadline) override;
  absl::Status Step(int64_t update, double rate) override;
  absl::Status OfferParameters() override;
  absl::StatusOr<proto::SavedState> Save(const std::string& directory,
                                         Time deadline) override;
  absl::Status FetchSlots(absl::Span<float* const> slots,
                          Time deadline) override;

 private:
  HostSteps(Optimizer optimizer, FlatModel& model)
      : optimizer_(std::move(optimizer)), model_(model) {}

  const Optimizer optimizer_;
  FlatModel& model_;
  std::vector<FlatBuffer> slots_;
};

class LocalSteps : public ForwardingExchange {
 public:
  // `plan`: of every worker's own steps, which `own` takes. The exchange is of
  // the same model, which has so many buckets.
  LocalSteps(std::unique_ptr<GradientExchange> exchange,
             const proto::JobSpec& spec, JobPlan plan, int num_buckets,
             std::unique_ptr<OwnSteps> own)
      : ForwardingExchange(std::move(exchange)),
        plan_(std::move(plan)),
        period_(spec.local_steps()),
        num_buckets_(num_buckets),
        own_(std::move(own)),
        step_(spec.first_step()) {}

  // `slots` become this worker's own state, on whatever rank.
  using GradientExchange::Join;
  absl::Status Join(std::vector<FlatBuffer> slots, ParametersArrived arrived,
                    Time deadline) override;
  absl::Status Submit(int bucket) override;
  absl::Status Finish(Time deadline) override;
  int64_t step() const override { return step_; }
  absl::Status Synchronise(Before next, Time deadline) override;
  // This worker's parameters and its optimizer state, which stands for all.
  // FAILED_PRECONDITION between averagings.
  absl::StatusOr<proto::SavedState> SaveState(const std::string& directory,
                                              Time deadline) override;
  absl::Status FetchSlots(absl::Span<float* const> slots,
                          Time deadline) override {
    return own_->FetchSlots(slots, deadline);
  }
  // This worker writes all of it, rank 0, who has made the directory.
  absl::Status CheckSaveDirectory(const std::string& directory,
                                  Time deadline) override {
    return absl::OkStatus();
  }

 private:
  absl::Status Average(Time deadline);

  const JobPlan plan_;
  const int64_t period_;
  const int num_buckets_;
  const std::unique_ptr<OwnSteps> own_;
  int64_t step_;
  bool averaged_ = true;  // since the last step
};

}  // namespace psring

#endif  // PSRING_COMMON_EXCHANGE_LOCAL_STEPS_H_
