// Whether all workers step with the same learning rates.
#ifndef PSRING_PYTHON_CAPI_RATE_CHECK_H_
#define PSRING_PYTHON_CAPI_RATE_CHECK_H_

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/cluster/member.h"
#include "common/fnv.h"

namespace psring {

// Of a model whose rates its workers set, each by itself, and that all step
// together. A part of the model would be updated with one worker's rates and
// another part with another's, and a schedule that looks at a worker's own loss
// leads there. One thread's own.
class RateCheck {
 public:
  // `id`: the model's. `member` outlives it.
  RateCheck(Member& member, std::string id)
      : member_(member), id_(std::move(id)) {}

  // After each step, on all workers, with the rates that this one had in it:
  // learning rates, and what else changes with them. Now and then, after 1, 2,
  // 4, ..., 64, 128, 192, ... steps, it asks the others, and blocks.
  // FAILED_PRECONDITION names a worker that has had others than worker 0 in any
  // step so far.
  absl::Status AfterStep(absl::Span<const double> rates, Time deadline);

 private:
  Member& member_;
  const std::string id_;
  Fnv all_;  // the rates of all steps
  int64_t steps_ = 0;
};

}  // namespace psring

#endif  // PSRING_PYTHON_CAPI_RATE_CHECK_H_
