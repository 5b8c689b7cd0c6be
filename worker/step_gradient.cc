#include "worker/step_gradient.h"

#include <c10/core/GradMode.h>

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/optim/gradient_clip.h"
#include "common/split_mix.h"
#include "worker/diverged.h"
#include "worker/torch/tensors.h"

namespace psring {
namespace {

// Unrelated seeds from related numbers.
uint64_t Mix(uint64_t x) { return SplitMix64(x).Next(); }

}  // namespace

StepGradient::StepGradient(const Parts& parts, const Options& options)
    : parts_(parts),
      options_(options),
      flat_(parts.model, parts.flat.layout, parts.memory,
            [this](int bucket) { OnBucketReady(bucket); }),
      loader_(parts.train, options.loader) {}

// Dropout's randomness is a function of (seed, rank, step): the same in every
// topology, and the same for a run that stopped and resumed.
void StepGradient::SeedDropout() {
  SeedLibtorch(Mix(Mix(options_.seed + 1) ^ Mix(static_cast<uint64_t>(step_)) ^
                   (static_cast<uint64_t>(options_.rank) << 48)));
}

void StepGradient::OnBucketReady(int bucket) {
  if (HoldsBack()) return held_back_.push_back(bucket);
  TimelineSpan span(parts_.track, "submit", {.step = step_, .bucket = bucket});
  submit_status_.Update(parts_.exchange.Submit(bucket));
}

absl::StatusOr<at::Tensor> StepGradient::Compute(int64_t step,
                                                 const Samples& now,
                                                 const Samples& next,
                                                 StepClock* clock) {
  step_ = step;
  batch_size_ = static_cast<int64_t>(now.indices.size());
  while (true) {
    held_back_.clear();
    auto loss = ComputeOnce(now, next, clock);
    if (!loss.ok() || !options_.scale_loss) return loss;
    if (Unscale()) {
      scaler_.Succeeded();
      return loss;
    }
    // NCCL that was aborted leaves anything.
    if (absl::Status s = parts_.cancellation.status(); !s.ok()) return s;
    if (!scaler_.Halve()) {
      return absl::OutOfRangeError(absl::StrCat(
          "the gradient of step ", step_,
          " is infinite in fp16: training has diverged. A smaller --lr, "
          "--warmup-epochs or --precision=bf16 may help"));
    }
  }
}

absl::StatusOr<at::Tensor> StepGradient::ComputeOnce(const Samples& now,
                                                     const Samples& next,
                                                     StepClock* clock) {
  const SpanArgs args = {.step = step_};
  SeedDropout();
  parts_.model.set_training(true);
  TimelineSpan data(parts_.track, "data", args);
  const auto batch = loader_.Load(now);
  if (!batch.ok()) return batch.status();
  if (!next.indices.empty()) loader_.Prepare(next);
  data.End();
  if (clock != nullptr) {
    if (absl::Status s = clock->EndData(); !s.ok()) return s;
  }
  TimelineSpan forward(parts_.track, "forward", args);
  at::Tensor output;
  {
    const PrecisionScope scope(options_.precision, parts_.memory.device.type());
    output = parts_.model.Forward(batch->images);
  }
  const at::Tensor loss = MeanNllLoss(output, batch->labels);
  forward.End();
  if (clock != nullptr) {
    if (absl::Status s = clock->EndForward(); !s.ok()) return s;
  }
  TimelineSpan backward(parts_.track, "backward", args);
  if (options_.scale_loss) {
    loss.mul(scaler_.scale()).backward();
  } else {
    loss.backward();
  }
  flat_.FinishBackward();
  return loss;
}

at::Tensor StepGradient::Gradients() const {
  const FlatMemory& memory = parts_.memory;
  return TensorAt(memory.gradients, {parts_.flat.gradients.size()},
                  memory.device);
}

bool StepGradient::Unscale() {
  c10::NoGradGuard no_grad;
  const at::Tensor gradients = Gradients();
  gradients.mul_(1 / scaler_.scale());
  return gradients.isfinite().all().item<bool>();
}

absl::Status StepGradient::Submit() {
  if (!submit_status_.ok()) return submit_status_;
  if (options_.clip_norm > 0) {
    if (absl::Status s = ClipGradient(); !s.ok()) return s;
  }
  for (int bucket : held_back_) {
    if (absl::Status s = parts_.exchange.Submit(bucket); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status StepGradient::ClipGradient() {
  TimelineSpan span(parts_.track, "clip", {.step = step_});
  const double norm = Clip();
  if (std::isfinite(norm)) return absl::OkStatus();
  if (absl::Status s = parts_.cancellation.status(); !s.ok()) return s;
  return Diverged(absl::StrCat("norm of step ", step_, "'s gradient"), norm);
}

double StepGradient::Clip() {
  if (parts_.memory.device.is_cpu()) {
    return ClipToNorm(options_.clip_norm, parts_.flat.gradients.span());
  }
  c10::NoGradGuard no_grad;
  const at::Tensor gradients = Gradients();
  const auto norm = gradients.norm().item<double>();
  const double factor = options_.clip_norm / (norm + 1e-6);
  if (factor < 1) gradients.mul_(factor);
  return norm;
}

}  // namespace psring
