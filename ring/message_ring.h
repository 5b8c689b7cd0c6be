// A ring whose ranks reach each other by messages; those that share memory take
// part as one node (routes.h). Buckets are summed by allreduce on the
// listener's thread, and every worker applies the optimizer to all of the
// model: in Finish, on the trainer's thread, to one bucket while the next one
// is being summed.
#ifndef PSRING_RING_MESSAGE_RING_H_
#define PSRING_RING_MESSAGE_RING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/exchange/gradient_exchange.h"
#include "common/optim/compression.h"
#include "common/trace/timeline.h"
#include "ring/host_ranks.h"
#include "ring/rank_model.h"
#include "ring/ring_exchange.h"
#include "ring/ring_listener.h"

namespace psring {

class MessageRing : public RingExchange {
 public:
  struct Options {
    absl::Duration step_timeout = absl::Seconds(60);  // of one collective
    Track* track = nullptr;          // of the listener's thread
    Track* trainer_track = nullptr;  // of the caller's
  };

  // `listener` is connected, and uses the nodes of `hosts` where several ranks
  // make one. `codec`: none where gradients travel as float32.
  MessageRing(std::unique_ptr<HostRanks> hosts, RankModel model,
              std::optional<GradientCodec> codec,
              std::unique_ptr<RingListener> listener, const Options& options);

  using GradientExchange::Join;
  // `arrived` is not called.
  absl::Status Join(std::vector<FlatBuffer> slots, ParametersArrived arrived,
                    Time deadline) override;
  absl::Status Submit(int bucket) override;
  absl::Status Finish(Time deadline) override;
  int64_t step() const override { return step_; }
  absl::Status Synchronise(Time deadline) override;
  absl::StatusOr<proto::SavedState> SaveState(const std::string& directory,
                                              Time deadline) override;
  absl::Status AllReduce(absl::Span<float> data, float scale,
                         Time deadline) override;
  Traffic traffic() const override {
    return listener_->communicator().traffic();
  }

 private:
  // A bucket of this step, and the task that sums it.
  struct Submitted {
    int bucket = 0;
    int64_t task = 0;
  };

  // Sums a bucket. On the listener's thread.
  absl::Status Reduce(int bucket, int64_t step);

  // Fixed after construction.
  const std::unique_ptr<HostRanks> hosts_;
  const std::optional<GradientCodec> codec_;
  const Options options_;

  // The trainer's thread's own, except for the gradients of buckets that are
  // being summed.
  RankModel model_;
  std::vector<Submitted> submitted_;
  int64_t step_;

  const std::unique_ptr<RingListener> listener_;  // ends first: its tasks use
                                                  // all of the above
};

}  // namespace psring

#endif  // PSRING_RING_MESSAGE_RING_H_
