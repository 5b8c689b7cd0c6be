// A ring whose ranks all share memory. Each sums its own slices of a bucket,
// applies the optimizer to them and writes the new parameters to all, in one
// pass over memory: the bits of a MessageRing for an N-th of the work. The
// optimizer's state of other slices is the other ranks'.
//
// Collectives run on a thread of their own or in Finish: a sum takes the same
// cores as backward does, and where these are no more than the ranks, taking
// turns costs less than getting into each other's way.
#ifndef PSRING_RING_SHARED_RING_H_
#define PSRING_RING_SHARED_RING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/exchange/gradient_exchange.h"
#include "common/exchange/serial_runner.h"
#include "common/trace/timeline.h"
#include "ring/host_ranks.h"
#include "ring/rank_model.h"
#include "ring/ring_exchange.h"
#include "ring/routes.h"
#include "ring/shm_communicator.h"

namespace psring {

class SharedRing : public RingExchange {
 public:
  struct Options {
    SerialRunner::Where where = SerialRunner::Where::kOwnThread;
    int threads = 1;  // that share this rank's part of a sum
    absl::Duration step_timeout = absl::Seconds(60);  // of one collective
    Track* track = nullptr;  // of whichever thread runs collectives
    Traffic traffic = {};    // of finding each other: all that there is
  };

  // `hosts`: one node, with arenas.
  SharedRing(std::unique_ptr<HostRanks> hosts, RankModel model,
             const Options& options);

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
  Traffic traffic() const override { return options_.traffic; }

 private:
  // Sums and updates a bucket. A task of the runner.
  absl::Status Reduce(int bucket, int64_t step);
  std::vector<OwnedSlice> SlicesOfRanks() const;
  absl::Status JoinRanks(std::vector<FlatBuffer> slots, Time deadline);
  // Copies the state of a slice from `rank`'s memory to here.
  void CopySlots(const OwnedSlice& slice, int rank);

  // Fixed after construction.
  const std::unique_ptr<HostRanks> hosts_;
  const Options options_;

  // The trainer's thread's own.
  int64_t step_;
  int64_t last_task_ = 0;

  // The runner's tasks' own while one is under way.
  RankModel model_;
  ShmCommunicator communicator_;

  SerialRunner runner_;  // ends first: it uses all of the above
};

}  // namespace psring

#endif  // PSRING_RING_SHARED_RING_H_
