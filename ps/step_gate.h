// When a worker that has pushed may go on: pure decisions.
//
// Clocks as in Ho et al. 2013 (stale synchronous parallel): a worker's clock is
// the number of steps that it has pushed. A worker waits while its clock is
// more than the bound ahead of the slowest worker's:
//   bsp     bound 0, and the step's gradients are summed before anyone goes on
//   ssp:k   bound k; gradients are applied as they come
//   async   no bound
#ifndef PSRING_PS_STEP_GATE_H_
#define PSRING_PS_STEP_GATE_H_

#include <cstdint>
#include <vector>

#include "protos/cluster.pb.h"

namespace psring {

class StepGate {
 public:
  enum class Verdict {
    kAccept,    // this gradient counts now
    kRepeat,    // it has counted before; it must not count again
    kTooEarly,  // its worker has not pushed the step before
  };

  // `staleness` matters in ssp only. Clocks start at `first_step`.
  StepGate(proto::Sync sync, int64_t staleness, int num_workers,
           int64_t first_step);

  // Worker `worker` has pushed `step`.
  Verdict OnPush(int worker, int64_t step);

  // The workers whose wait ends now, in rank order. Each accepted push is
  // released exactly once.
  std::vector<int> Release();

  // Is this worker's last push accepted but not released?
  bool waiting(int worker) const { return waiting_[worker]; }
  bool anyone_waiting() const;
  // How many steps this worker has pushed, `first_step` included.
  int64_t clock(int worker) const { return clocks_[worker]; }

  // The slowest workers, for whom the others wait.
  std::vector<int> Awaited() const;
  // The step that they have yet to push.
  int64_t awaited_step() const { return MinClock(); }

 private:
  int64_t MinClock() const;

  int64_t bound_;
  std::vector<int64_t> clocks_;
  std::vector<bool> waiting_;
};

}  // namespace psring

#endif  // PSRING_PS_STEP_GATE_H_
