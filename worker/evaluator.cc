#include "worker/evaluator.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/cluster/worker_sum.h"
#include "worker/buffers.h"
#include "worker/sampler.h"
#include "worker/torch/tensors.h"

namespace psring {
namespace {

constexpr int64_t kMostSamples = 256;
constexpr int64_t kMostPixels = int64_t{1} << 26;   // 256 MiB of float32
constexpr int64_t kSmallPixels = int64_t{1} << 22;  // whatever a step takes

int64_t BatchSize(int64_t pixels_per_image, int64_t training_batch_size) {
  const int64_t pixels = std::max<int64_t>(pixels_per_image, 1);
  const int64_t most = std::max(training_batch_size, kSmallPixels / pixels);
  return std::clamp<int64_t>(std::min(most, kMostPixels / pixels), 1,
                             kMostSamples);
}

// `size` samples of `mine` from `begin` on, or what is left of them.
Samples BatchAt(const std::vector<int64_t>& mine, size_t begin, size_t size) {
  const size_t first = std::min(begin, mine.size());
  const size_t end = std::min(first + size, mine.size());
  return {{mine.begin() + first, mine.begin() + end}};
}

}  // namespace

Evaluator::Evaluator(const Parts& parts, const LoaderOptions& loader,
                     Precision precision, int64_t training_batch_size,
                     absl::Duration step_timeout)
    : parts_(parts),
      precision_(precision),
      step_timeout_(step_timeout),
      batch_size_(
          BatchSize(parts.test.pixels_per_image(), training_batch_size)),
      loader_(parts.test, loader) {}

absl::StatusOr<std::optional<Evaluation>> Evaluator::Evaluate(int64_t step) {
  TimelineSpan span(parts_.track, "evaluate", {.step = step});
  Activity& activity = parts_.member.activities().own();
  activity.Work("evaluating");
  if (absl::Status s = Meet(); !s.ok()) return s;
  if (absl::Status s = BroadcastBuffers(); !s.ok()) return s;
  const proto::Welcome& job = parts_.member.job();
  const std::vector<int64_t> mine =
      EvaluationIndices(parts_.test.size(), job.workers_size(), job.rank());
  c10::NoGradGuard no_grad;
  parts_.model.set_training(false);
  // Loss, correct, samples; workers that ended it early.
  std::vector<double> sums(4, 0.0);
  for (size_t begin = 0; begin < mine.size(); begin += batch_size_) {
    if (absl::Status s = parts_.cancellation.status(); !s.ok()) return s;
    if (parts_.stop != nullptr && parts_.stop->wished()) {
      sums[3] = 1;
      break;
    }
    activity.Work("evaluating");
    const auto batch = loader_.Load(BatchAt(mine, begin, batch_size_));
    if (!batch.ok()) return batch.status();
    loader_.Prepare(BatchAt(mine, begin + batch_size_, batch_size_));
    const PrecisionScope scope(precision_, parts_.device.type());
    const at::Tensor output = parts_.model.Forward(batch->images);
    sums[0] += SumNllLoss(output, batch->labels).item<double>();
    sums[1] += output.argmax(1).eq(batch->labels).sum().item<double>();
    sums[2] += static_cast<double>(batch->labels.numel());
  }
  // Others may have more to do: they work, which --progress-timeout bounds.
  const WaitingForOthers waiting(activity, "a sum over all workers");
  if (absl::Status s = SumOverWorkers(
          parts_.member, absl::StrCat("evaluation ", evaluations_++),
          absl::MakeSpan(sums), Time::InfiniteFuture());
      !s.ok()) {
    return s;
  }
  if (sums[3] > 0) return std::nullopt;
  const double samples = std::max(sums[2], 1.0);
  return std::optional<Evaluation>({sums[0] / samples, sums[1] / samples});
}

absl::Status Evaluator::Meet() {
  const WaitingForOthers waiting(parts_.member.activities().own(),
                                 "a meeting of all workers");
  return parts_.exchange.Synchronise(Before::kEvaluation,
                                     StepDeadline(step_timeout_));
}

absl::Status Evaluator::BroadcastBuffers() {
  std::vector<ExtraTensor> buffers = BuffersOf(parts_.model);
  if (buffers.empty()) return absl::OkStatus();
  std::string mine;
  for (const ExtraTensor& buffer : buffers) mine += buffer.bytes;
  const WaitingForOthers waiting(parts_.member.activities().own(),
                                 "worker 0's running statistics");
  const bool first = parts_.member.job().rank() == 0;
  auto all =
      parts_.member.Gather(absl::StrCat("buffers ", evaluations_),
                           first ? mine : "", StepDeadline(step_timeout_));
  if (!all.ok()) return all.status();
  const std::string& theirs = all->front();
  if (theirs.size() != mine.size()) {
    return absl::InternalError("rank 0 has buffers of another size");
  }
  size_t offset = 0;
  for (ExtraTensor& buffer : buffers) {
    buffer.bytes = theirs.substr(offset, buffer.bytes.size());
    offset += buffer.bytes.size();
  }
  return SetBuffers(parts_.model, buffers);
}

}  // namespace psring
