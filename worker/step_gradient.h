// A step's gradient: samples go through the model and back. Its buckets leave
// on the way or, where the whole gradient is needed first, at its end.
#ifndef PSRING_WORKER_STEP_GRADIENT_H_
#define PSRING_WORKER_STEP_GRADIENT_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/exchange/gradient_exchange.h"
#include "common/model/flat_model.h"
#include "common/net/cancellation.h"
#include "common/trace/timeline.h"
#include "worker/batch_loader.h"
#include "worker/data/dataset.h"
#include "worker/flat_parameters.h"
#include "worker/loss_scaler.h"
#include "worker/models/classifier.h"
#include "worker/step_clock.h"
#include "worker/torch/precision.h"

namespace psring {

// One thread's own, the exchange's.
class StepGradient {
 public:
  // All of it outlives this.
  struct Parts {
    Classifier& model;
    const Dataset& train;
    FlatModel& flat;
    FlatMemory memory;  // what the model computes on: flat's, or a GPU's
    GradientExchange& exchange;
    const Cancellation& cancellation;
    Track* track = nullptr;  // null: no timeline
  };

  struct Options {
    uint64_t seed = 0;  // dropout's
    int rank = 0;
    double clip_norm = 0;  // of this worker's gradient; 0: no clipping
    Precision precision = Precision::kFp32;
    bool scale_loss = false;    // as fp16 needs it
    LoaderOptions loader = {};  // of the training samples
  };

  StepGradient(const Parts& parts, const Options& options);

  // Forward and backward, again with a smaller factor where a scaled loss gave
  // infinite gradients. The mean loss, on the model's device; a GPU may still
  // compute it. `next`: the step after's samples, without indices if they are
  // not known. `clock` (null: none) is told of data and forward. Throws what
  // libtorch throws.
  absl::StatusOr<at::Tensor> Compute(int64_t step, const Samples& now,
                                     const Samples& next, StepClock* clock);

  // After Compute: submits what has not left, clipped. Errors: those of the
  // buckets that left during Compute; a norm that is no number.
  absl::Status Submit();

  // Samples of the step that is computed.
  int64_t batch_size() const { return batch_size_; }

 private:
  void OnBucketReady(int bucket);
  // Whether buckets leave only after backward, all gradients being needed.
  bool HoldsBack() const {
    return options_.clip_norm > 0 || options_.scale_loss;
  }
  void SeedDropout();
  absl::StatusOr<at::Tensor> ComputeOnce(const Samples& now,
                                         const Samples& next, StepClock* clock);
  // Divides the gradients by the loss's factor; whether all are finite then.
  bool Unscale();
  at::Tensor Gradients() const;
  absl::Status ClipGradient();
  // Clips the gradients in place; their norm before.
  double Clip();

  const Parts parts_;
  const Options options_;
  FlatParameters flat_;
  BatchLoader loader_;
  LossScaler scaler_;
  // Of the step that is computed.
  int64_t step_ = 0;
  int64_t batch_size_ = 0;
  absl::Status submit_status_;  // of the hooks of backward
  std::vector<int> held_back_;  // buckets
};

}  // namespace psring

#endif  // PSRING_WORKER_STEP_GRADIENT_H_
