#include "ring/nccl/nccl_verdict.h"

#include "absl/strings/str_cat.h"
#include "common/clock.h"

namespace psring {
namespace {

std::string In(const NcclView& view, absl::string_view what) {
  if (view.collective.empty()) return std::string(what);
  return absl::StrCat(view.collective, ": ", what);
}

std::string InMilliseconds(absl::Duration duration) {
  return absl::FormatDuration(absl::Trunc(duration, absl::Milliseconds(1)));
}

}  // namespace

absl::Status JudgeNccl(Time now, const NcclView& view,
                       absl::Duration culprit_grace) {
  if (!view.cancelled.ok()) {
    return absl::AbortedError(In(view, std::string(view.cancelled.message())));
  }
  if (!view.stream.ok()) {
    return absl::InternalError(In(view, std::string(view.stream.message())));
  }
  if (!view.error.empty() && now - view.error_since >= culprit_grace) {
    return absl::UnavailableError(In(view, view.error));
  }
  if (now - view.asked_since >= view.driver_timeout) {
    return absl::UnavailableError(
        In(view, absl::StrCat("the GPU's driver has not answered for ",
                              InMilliseconds(view.driver_timeout))));
  }
  if (view.collective.empty()) return absl::OkStatus();
  const absl::Duration waited = now - view.collective_since;
  if (waited >= view.timeout) {
    return absl::DeadlineExceededError(
        In(view,
           absl::StrCat("not complete after ", InMilliseconds(view.timeout))));
  }
  if (view.late_elsewhere && waited >= absl::ZeroDuration()) {
    return absl::DeadlineExceededError(
        In(view, absl::StrCat("not complete after ", InMilliseconds(waited),
                              ", and another rank has waited too long")));
  }
  return absl::OkStatus();
}

}  // namespace psring
