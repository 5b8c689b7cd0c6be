// When a worker that has pushed may go on: pure decisions, a gate a piece.
//
// Clocks as in Ho et al. 2013 (stale synchronous parallel): a worker's clock is
// the number of steps that it has pushed. Gradients are applied as they come,
// and a worker waits while its clock is more than the bound ahead of the
// slowest worker's:
//   ssp:k   bound k
//   async   no bound
// In bsp one step is open at a time, gathers gradients, and closes with them:
//   bsp               when every worker's has come
//   backup workers b  when the first N-b have come (Chen et al. 2016). A later
//                     one is recognised by its step and dropped; its worker
//                     gets the newest parameters and goes on with the step that
//                     is open now.
// Every piece closes with its own first N-b, as every variable does on Chen et
// al.'s parameter servers: waiting until all pieces have agreed on a set would
// cost a round between servers. So a worker may be late with some pieces of a
// step only; what it goes on with is the furthest step that any piece has told
// it (PsExchange). A piece that is not as far holds its gradient until then. No
// step is left without its N-b: one that some piece has closed was pushed by
// N-b workers, who push it to all pieces before they go on.
#ifndef PSRING_PS_STEP_GATE_H_
#define PSRING_PS_STEP_GATE_H_

#include <cstdint>
#include <vector>

#include "protos/cluster.pb.h"

namespace psring {

class StepGate {
 public:
  enum class Verdict {
    kAccept,    // this gradient counts, now or when its step is open
    kLate,      // its step has closed without it; its worker waits for nothing
    kRepeat,    // it has come before; it must not count again
    kTooEarly,  // its worker has not pushed the step before
  };

  // `staleness` matters in ssp only, `backup_workers`, fewer than the workers,
  // in bsp only. Clocks start at `first_step`.
  StepGate(proto::Sync sync, int64_t staleness, int num_workers,
           int64_t first_step, int backup_workers = 0);

  // Worker `worker` has pushed `step`.
  Verdict OnPush(int worker, int64_t step);

  // The workers whose wait ends now, in rank order. Each accepted push is
  // released exactly once. In bsp they are those whose gradients closed the
  // step before next_step(); call it until it gives nobody, as the next step
  // may be complete already.
  std::vector<int> Release();

  // Of those that waited for the step to open, the ones that came too late for
  // it all the same, in rank order: their gradients are dropped. Call it after
  // each Release.
  std::vector<int> ReleaseLate();

  // Is this worker's last push accepted but not released?
  bool waiting(int worker) const { return waiting_[worker]; }
  bool anyone_waiting() const { return !in_line_.empty(); }
  // One more than the last step that this worker has pushed.
  int64_t clock(int worker) const { return clocks_[worker]; }
  // What a released worker goes on with: in bsp the step that is open.
  int64_t next_step(int worker) const { return bsp_ ? open_ : clocks_[worker]; }

  // The workers for whom the others wait, and the step that they have yet to
  // push.
  std::vector<int> Awaited() const;
  int64_t awaited_step() const { return bsp_ ? open_ : MinClock(); }

 private:
  int64_t MinClock() const;
  void StopWaiting(const std::vector<int>& workers);

  bool bsp_;
  int64_t bound_;  // not bsp
  bool may_skip_;  // bsp with backup workers
  size_t needed_;  // bsp
  int64_t open_;   // bsp
  std::vector<int64_t> clocks_;
  std::vector<bool> waiting_;
  std::vector<int> in_line_;  // in the order in which they came
};

}  // namespace psring

#endif  // PSRING_PS_STEP_GATE_H_
