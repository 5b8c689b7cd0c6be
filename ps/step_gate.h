// When a worker that has pushed may take its next step: pure decisions, a gate
// a piece. Whatever the policy, the protocol between a gate and its shard is
// the same: OnPush says what a gradient is worth, and who need not wait any
// more.
//
// Clocks as in Ho et al. 2013 (stale synchronous parallel): a worker's clock is
// the number of steps that it has pushed.
#ifndef PSRING_PS_STEP_GATE_H_
#define PSRING_PS_STEP_GATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "protos/cluster.pb.h"

namespace psring {

class StepGate {
 public:
  enum class Verdict {
    kAccept,    // its worker waits from now on, until a decision releases it
    kRepeat,    // it has come before; it must not count again
    kTooEarly,  // its worker has not pushed the step before
  };

  // What follows from a push. Each accepted one is released exactly once.
  struct Decision {
    Verdict verdict = Verdict::kAccept;
    // The workers whose wait ends now, in rank order. Behind a barrier each
    // group are those whose gradients close a step, one step after the other:
    // the next one may be complete already.
    std::vector<std::vector<int>> released;
    // Those whose wait ends as well, in rank order, but whose step has closed
    // without them: their gradients are dropped.
    std::vector<int> late;
  };

  virtual ~StepGate() = default;

  // Worker `worker` has pushed `step`.
  virtual Decision OnPush(int worker, int64_t step) = 0;

  // That worker pushes no more. The workers whose wait ends with it, in rank
  // order: none behind a barrier, which needs everybody's gradient.
  virtual std::vector<int> OnWorkerLeft(int worker) { return {}; }

  // The step that a worker takes next if its wait ends now.
  virtual int64_t next_step(int worker) const = 0;

  // The step that the others wait for, and the workers that have yet to push
  // it.
  virtual int64_t awaited_step() const = 0;
  std::vector<int> Awaited() const;

  // Is this worker's last push accepted but not released?
  bool waiting(int worker) const { return waiting_[worker]; }
  bool anyone_waiting() const { return !in_line_.empty(); }
  // One more than the last step that this worker has pushed.
  int64_t clock(int worker) const { return clocks_[worker]; }

 protected:
  StepGate(int num_workers, int64_t first_step)
      : clocks_(num_workers, first_step), waiting_(num_workers, false) {}

  // A push that is the worker's next puts it in line; what every gate says to
  // any other. `may_skip`: a worker may leave steps out.
  Verdict Enter(int worker, int64_t step, bool may_skip);
  // Of a worker that nobody waits for.
  void SetClock(int worker, int64_t clock) { clocks_[worker] = clock; }
  // These wait no more; in rank order.
  std::vector<int> Leave(std::vector<int> workers);

  // The workers that wait, in the order in which they came.
  const std::vector<int>& in_line() const { return in_line_; }
  int64_t MinClock() const;

 private:
  std::vector<int64_t> clocks_;
  std::vector<bool> waiting_;
  std::vector<int> in_line_;
};

// One step is open at a time, gathers gradients, and closes with them:
//   bsp               when every worker's has come
//   backup workers b  when the first N-b have come (Chen et al. 2016). A later
//                     one is recognised by its step and dropped; its worker
//                     gets the newest parameters and takes the step that is
//                     open now.
// Every piece closes with its own first N-b, as every variable does on Chen et
// al.'s parameter servers: waiting until all pieces have agreed on a set would
// cost a round between servers. So a worker may be late with some pieces of a
// step only; the step that it takes next is the furthest that any piece has
// told it (PsExchange). A piece that is not as far holds its gradient until
// then. No step is left without its N-b: one that some piece has closed was
// pushed by N-b workers, who push it to all pieces before their next one.
class BarrierGate : public StepGate {
 public:
  // Steps count from `first_step`; fewer backup workers than workers. `silent`:
  // workers that push nothing.
  BarrierGate(int num_workers, int64_t first_step, int backup_workers,
              absl::Span<const int> silent = {});

  Decision OnPush(int worker, int64_t step) override;
  int64_t next_step(int worker) const override { return open_; }
  int64_t awaited_step() const override { return open_; }

 private:
  const size_t needed_;  // gradients that close a step
  const bool may_skip_;
  int64_t open_;
};

// Gradients are applied as they come, and a worker waits while its clock is
// more than `max_lead` ahead of the slowest worker's (Ho et al. 2013; without a
// bound, Dean et al. 2012).
class BoundGate : public StepGate {
 public:
  BoundGate(int num_workers, int64_t first_step, int64_t max_lead)
      : StepGate(num_workers, first_step), max_lead_(max_lead) {}

  Decision OnPush(int worker, int64_t step) override;
  std::vector<int> OnWorkerLeft(int worker) override;
  int64_t next_step(int worker) const override { return clock(worker); }
  int64_t awaited_step() const override { return MinClock(); }

 private:
  // Those within the bound wait no more.
  std::vector<int> ReleaseWithinBound();

  const int64_t max_lead_;
};

// The gate of the job's consistency policy. Only behind a barrier are there
// workers that push nothing.
std::unique_ptr<StepGate> MakeStepGate(const proto::JobSpec& spec,
                                       int num_workers,
                                       absl::Span<const int> silent = {});

}  // namespace psring

#endif  // PSRING_PS_STEP_GATE_H_
