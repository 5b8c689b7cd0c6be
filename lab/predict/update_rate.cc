#include "lab/predict/update_rate.h"

#include <algorithm>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/model/flat_model.h"
#include "common/optim/fused_update.h"
#include "common/optim/optimizer.h"

namespace psring {
namespace {

// 16 MiB: beyond what a core's own caches hold, as a model is.
constexpr int64_t kElements = 4 << 20;

}  // namespace

absl::StatusOr<double> MeasureUpdateRate(absl::Duration budget) {
  proto::OptimizerSettings settings;
  settings.set_name("sgd");
  settings.set_lr(0.125);
  settings.mutable_schedule()->set_kind("constant");
  auto optimizer = Optimizer::Create(settings);
  if (!optimizer.ok()) return optimizer.status();
  auto gradients = FlatBuffer::Create(2 * kElements);
  if (!gradients.ok()) return gradients.status();
  auto parameters = FlatBuffer::Create(kElements);
  if (!parameters.ok()) return parameters.status();
  const void* workers[] = {gradients->data(), gradients->data() + kElements};
  const Time end = Now() + budget;
  absl::Duration least = absl::InfiniteDuration();
  int64_t count = 0;
  do {
    const Time start = Now();
    SumAndUpdate(*optimizer, {0, kElements}, {0, kElements}, workers, 0.5f,
                 ++count, {0.125}, parameters->data(), {}, {});
    // The first one pays for the memory's pages.
    if (count > 1) least = std::min(least, Now() - start);
  } while (Now() < end || count < 3);
  return 2.0 * kElements * sizeof(float) / absl::ToDoubleSeconds(least);
}

}  // namespace psring
