// How good the model is on the test samples, which the workers share out.
#ifndef PSRING_WORKER_EVALUATOR_H_
#define PSRING_WORKER_EVALUATOR_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/cluster/member.h"
#include "common/cluster/stop_agreement.h"
#include "common/exchange/gradient_exchange.h"
#include "common/net/cancellation.h"
#include "common/trace/timeline.h"
#include "worker/batch_loader.h"
#include "worker/data/dataset.h"
#include "worker/models/classifier.h"
#include "worker/torch/precision.h"

namespace psring {

// Of all test samples, the same on every worker.
struct Evaluation {
  double loss = 0;
  double accuracy = 0;
};

// One thread's own, the exchange's.
class Evaluator {
 public:
  // All of it outlives the evaluator.
  struct Parts {
    Classifier& model;
    const Dataset& test;
    c10::Device device;  // that the model computes on
    GradientExchange& exchange;
    Member& member;
    const Cancellation& cancellation;
    Track* track = nullptr;         // null: no timeline
    StopAgreement* stop = nullptr;  // null: nobody ends the training early
  };

  // `loader` is how samples are loaded, `training_batch_size` what a step takes
  // of them.
  Evaluator(const Parts& parts, const LoaderOptions& loader,
            Precision precision, int64_t training_batch_size,
            absl::Duration step_timeout);

  // All workers call it after the same `step`: with the parameters of that step
  // and rank 0's running statistics, which all have from then on. Nothing where
  // somebody wishes that the training ended (SIGTERM), which must not wait for
  // it. Blocks, to meet at most for twice the step timeout, then as long as any
  // worker evaluates. Throws what libtorch throws.
  absl::StatusOr<std::optional<Evaluation>> Evaluate(int64_t step);

  // Samples at once, for which a device with room for a step of training has
  // room: more than the step takes only of small images.
  int64_t batch_size() const { return batch_size_; }

 private:
  absl::Status Meet();
  // All workers take rank 0's running statistics.
  absl::Status BroadcastBuffers();

  const Parts parts_;
  const Precision precision_;
  const absl::Duration step_timeout_;
  const int64_t batch_size_;
  BatchLoader loader_;
  int64_t evaluations_ = 0;
};

}  // namespace psring

#endif  // PSRING_WORKER_EVALUATOR_H_
