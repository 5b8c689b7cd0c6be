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
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/exchange/forwarding_exchange.h"
#include "common/optim/job_plan.h"
#include "common/optim/optimizer.h"
#include "protos/cluster.pb.h"

namespace psring {

class LocalSteps : public ForwardingExchange {
 public:
  // `plan`: of every worker's own steps. `model` is the exchange's, and
  // outlives this.
  static absl::StatusOr<std::unique_ptr<LocalSteps>> Create(
      std::unique_ptr<GradientExchange> exchange, const proto::JobSpec& spec,
      JobPlan plan, FlatModel& model);

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
  // This worker writes all of it, rank 0, who has made the directory.
  absl::Status CheckSaveDirectory(const std::string& directory,
                                  Time deadline) override {
    return absl::OkStatus();
  }

 private:
  LocalSteps(std::unique_ptr<GradientExchange> exchange, JobPlan plan,
             Optimizer optimizer, int64_t period, int64_t first_step,
             FlatModel& model)
      : ForwardingExchange(std::move(exchange)),
        plan_(std::move(plan)),
        optimizer_(std::move(optimizer)),
        period_(period),
        model_(model),
        step_(first_step) {}

  absl::Status Average(Time deadline);

  const JobPlan plan_;
  const Optimizer optimizer_;
  const int64_t period_;
  FlatModel& model_;
  std::vector<FlatBuffer> slots_;
  int64_t step_;
  bool averaged_ = true;  // since the last step
};

}  // namespace psring

#endif  // PSRING_COMMON_EXCHANGE_LOCAL_STEPS_H_
