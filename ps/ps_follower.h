// A worker whose gradients another worker of its host pushes, with its own
// (common/cluster/host_groups.h): it moves no data, and keeps step with the
// others. Behind a barrier, without backup workers.
#ifndef PSRING_PS_PS_FOLLOWER_H_
#define PSRING_PS_PS_FOLLOWER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/cluster/member.h"
#include "common/exchange/gradient_exchange.h"
#include "common/optim/job_plan.h"
#include "protos/cluster.pb.h"

namespace psring {

class PsFollower : public GradientExchange {
 public:
  // The references outlive it.
  PsFollower(Member& member, const proto::Welcome& job)
      : member_(member), job_(job), step_(FirstExchange(job.spec())) {}

  using GradientExchange::Join;
  // Where its parameters come from is for whoever wraps it.
  absl::Status Join(std::vector<FlatBuffer> slots, ParametersArrived arrived,
                    Time deadline) override {
    return absl::OkStatus();
  }
  absl::Status Submit(int bucket) override { return absl::OkStatus(); }
  absl::Status Finish(Time deadline) override;
  int64_t step() const override { return step_; }
  absl::Status Synchronise(Before next, Time deadline) override;
  // FAILED_PRECONDITION: the state is not this worker's.
  absl::StatusOr<proto::SavedState> SaveState(const std::string& directory,
                                              Time deadline) override;
  absl::Status FetchSlots(absl::Span<float* const> slots,
                          Time deadline) override;
  Traffic traffic() const override { return {}; }

 private:
  Member& member_;
  const proto::Welcome& job_;
  int64_t step_;
  int64_t meetings_ = 0;
};

}  // namespace psring

#endif  // PSRING_PS_PS_FOLLOWER_H_
