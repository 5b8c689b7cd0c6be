#include "worker/late_loss.h"

#include <ATen/ops/empty.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

#include "absl/time/clock.h"

namespace psring {
namespace {

// Short beside a step.
constexpr absl::Duration kLookAgain = absl::Microseconds(20);

}  // namespace

absl::StatusOr<std::optional<KnownLoss>> LateLoss::Push(int64_t step,
                                                        const at::Tensor& loss,
                                                        Time deadline) {
  if (!late_) return std::optional<KnownLoss>({step, loss.item<double>()});
  Pending next;
  next.step = step;
  next.value = at::empty(
      {},
      at::TensorOptions().dtype(at::kFloat).pinned_memory(!device_.is_cpu()));
  next.value.copy_(loss.detach(), /*non_blocking=*/true);
  if (!device_.is_cpu()) {
    next.arrived.emplace(device_.type());
    next.arrived->record(
        c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  }
  auto known = Flush(deadline);
  pending_.emplace(std::move(next));
  return known;
}

absl::StatusOr<std::optional<KnownLoss>> LateLoss::Flush(Time deadline) {
  if (!pending_.has_value()) return std::optional<KnownLoss>();
  while (pending_->arrived.has_value() && !pending_->arrived->query()) {
    if (absl::Status s = cancellation_.status(); !s.ok()) return s;
    if (Now() >= deadline) {
      return absl::DeadlineExceededError(
          "the GPU has not computed the loss in time");
    }
    absl::SleepFor(kLookAgain);
  }
  const KnownLoss known = {pending_->step, pending_->value.item<double>()};
  pending_.reset();
  return std::optional<KnownLoss>(known);
}

}  // namespace psring
