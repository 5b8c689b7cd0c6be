// The seam between the training loop and the topology.
//
// The loop does not know whether a server or every worker applies the
// optimizer: it promises its gradients and is promised "the parameters are at
// the next step".
//
//   Join            once, before the first step
//   Submit          as each bucket's gradients are ready, while backward runs
//   Finish          once a step
//
// All calls come from one thread, the trainer's; only Submit may come from the
// one that runs backward for it, one call at a time, where the exchange is one
// for GPUs. After an error the exchange is of no more use.
#ifndef PSRING_COMMON_EXCHANGE_GRADIENT_EXCHANGE_H_
#define PSRING_COMMON_EXCHANGE_GRADIENT_EXCHANGE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/model/flat_model.h"

namespace psring {

// Bytes of the data plane, headers included, since the start.
struct Traffic {
  int64_t sent = 0;
  int64_t received = 0;
  // Of `sent`, those that were gradients or partial sums of them: without
  // headers, and without the parameters or the mean that return.
  int64_t gradients_sent = 0;

  Traffic& operator+=(const Traffic& more) {
    sent += more.sent;
    received += more.received;
    gradients_sent += more.gradients_sent;
    return *this;
  }
};

// Until when a step waits for others. Whoever can tell who is late gives up
// after `step_timeout`, and names the culprit first.
inline Time StepDeadline(absl::Duration step_timeout) {
  return Now() + 2 * step_timeout;
}

// What workers meet for; see Synchronise.
enum class Before { kEvaluation, kSaveState };

// Told of a bucket whose parameters are the next step's, on the thread that has
// called the exchange.
using ParametersArrived = std::function<void(int bucket)>;

class GradientExchange {
 public:
  virtual ~GradientExchange() = default;

  // Fills the model's parameters, on every worker, with rank 0's. A run that
  // resumes hands in rank 0's optimizer state: one buffer a slot, each as large
  // as the flat model; a fresh one none. `arrived`, unless it is null, is
  // called in Submit and in Finish of each bucket that has come; an exchange
  // may leave any out. Blocks.
  virtual absl::Status Join(std::vector<FlatBuffer> slots,
                            ParametersArrived arrived, Time deadline) = 0;
  absl::Status Join(std::vector<FlatBuffer> slots, Time deadline) {
    return Join(std::move(slots), nullptr, deadline);
  }

  // This bucket's gradients are ready and stay as they are until Finish. Never
  // blocks. Buckets come in any order, the same on every worker, each once a
  // step.
  virtual absl::Status Submit(int bucket) = 0;

  // Blocks until the parameters hold the new step. Every bucket must have been
  // submitted. DEADLINE_EXCEEDED names who holds the step up.
  virtual absl::Status Finish(Time deadline) = 0;

  // The step whose gradients come next. One more after every Finish; a worker
  // that was late for a step (backup workers) leaves out those that the others
  // have closed meanwhile, never beyond the next Synchronise or the last step.
  virtual int64_t step() const = 0;

  // Blocks until every worker is here and all hold the same parameters: those
  // of the last step, with every gradient in them. Before kSaveState also until
  // rank 0 has, or can reach, the state that SaveState writes and FetchSlots
  // copies; one of them follows.
  virtual absl::Status Synchronise(Before next, Time deadline) = 0;

  // Rank 0 only, after Synchronise and before the next step: whoever holds the
  // state writes it into files that LayOutStateFiles made in `directory`, and
  // says what it wrote and what it left to WriteEdges. Blocks. What EndsJob
  // (ends_job.h) names ends the job; after any other error it may go on.
  virtual absl::StatusOr<proto::SavedState> SaveState(
      const std::string& directory, Time deadline) = 0;

  // Rank 0 only, as SaveState: copies the optimizer's state, wherever it is
  // held, to `slots`, all of the optimizer's, of as many elements each as the
  // flat model. Blocks; errors as SaveState's.
  virtual absl::Status FetchSlots(absl::Span<float* const> slots,
                                  Time deadline) = 0;

  // Rank 0 only: can everybody who would write there write into `directory`?
  // Where only rank 0 writes, it has found that out when it made the directory.
  virtual absl::Status CheckSaveDirectory(const std::string& directory,
                                          Time deadline) {
    return absl::OkStatus();
  }

  virtual Traffic traffic() const = 0;
};

}  // namespace psring

#endif  // PSRING_COMMON_EXCHANGE_GRADIENT_EXCHANGE_H_
