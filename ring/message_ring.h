// A ring whose ranks reach each other by messages; those that share memory take
// part as one node (routes.h). Tasks of the listener's runner sum buckets, and
// whoever has the sum of a slice applies the optimizer to it and sends the new
// parameters on, where an allreduce would send the sum.
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
    Track* track = nullptr;  // of the listener's runner
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
  absl::Status Synchronise(Before next, Time deadline) override;
  absl::StatusOr<proto::SavedState> SaveState(const std::string& directory,
                                              Time deadline) override;
  absl::Status FetchSlots(absl::Span<float* const> slots,
                          Time deadline) override;
  absl::Status AllReduce(absl::Span<float> data, float scale,
                         Time deadline) override;
  Traffic traffic() const override {
    return listener_->communicator().traffic();
  }

 private:
  // Tasks of the listener's runner.
  absl::Status JoinRanks(std::vector<FlatBuffer> slots, Time deadline);
  // Sums and updates a bucket.
  absl::Status Reduce(int bucket, int64_t step);
  // The state of all slices goes from rank 0 to their owners, or the other way.
  // A wait ends at the deadline or, if that is later, after the step's timeout.
  enum class Direction { kToOwners, kToRank0 };
  absl::Status MoveSlots(Direction direction, Time deadline);
  absl::Status CollectSlots(Time deadline);

  // Fixed after construction.
  const std::unique_ptr<HostRanks> hosts_;
  const std::optional<GradientCodec> codec_;
  const Options options_;

  // The trainer's thread's own.
  int64_t step_;
  int64_t last_task_ = 0;

  // The listener's tasks' own while one is under way.
  RankModel model_;
  // Rank 0: whether the last meeting before a save has brought it the state.
  absl::Status collected_;

  const std::unique_ptr<RingListener> listener_;  // ends first: its tasks use
                                                  // all of the above
};

}  // namespace psring

#endif  // PSRING_RING_MESSAGE_RING_H_
