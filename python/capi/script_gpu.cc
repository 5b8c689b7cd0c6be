#include "python/capi/script_gpu.h"

#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/cluster/host_of.h"
#include "common/log.h"
#include "common/optim/policies.h"

namespace psring {

void ExitBeforeAbort(const absl::Status& why) {
  absl::SleepFor(absl::Seconds(1));
  Log(LogLevel::kCritical,
      absl::StrCat(why.message(),
                   "; this process ends, before it uses what NCCL has not "
                   "summed"));
  FlushLog();
  std::_Exit(1);
}

absl::StatusOr<int> ParseScriptDevice(const std::string& text) {
  if (text == "cpu") return -1;
  int index = -1;
  absl::string_view number = text;
  if (absl::ConsumePrefix(&number, "cuda:") &&
      absl::SimpleAtoi(number, &index) && index >= 0) {
    return index;
  }
  return absl::InvalidArgumentError(
      absl::StrCat("device \"", text, "\": it is \"cpu\" or \"cuda:INDEX\""));
}

absl::StatusOr<std::optional<NcclApi>> ChooseSums(
    const GpuWish& wish, const GpuDoor& door, const Device& device,
    JobClient& job, proto::JobSpec& spec, Time deadline) {
  if (spec.mode() != proto::RING) {
    return ChooseHostSum(wish.ring_backend == "host" ? "off" : "auto",
                         /*on_gpu=*/true, spec, door.load_nccl);
  }
  if (wish.ring_backend == "nccl") {
    spec.set_ring_backend("nccl");
    const absl::Status s = CheckPolicies(spec, job.job().workers_size());
    if (!s.ok()) return s;
  }
  const bool hidden = job.requires_encryption() && !OnOneHost(job.job());
  const std::string backend =
      hidden && wish.ring_backend == "auto" ? "host" : wish.ring_backend;
  auto nccl = ChooseRingBackend(backend, /*on_gpu=*/true, spec, door.load_nccl);
  if (!nccl.ok() || wish.ring_backend != "auto") return nccl;
  const bool can = nccl->has_value();
  const auto why_not = AskForReasonAgainstNccl(
      job.member(), absl::StrCat("gpus of ", spec.model()),
      can ? device.info().bus_id : std::string(), /*may_share=*/false,
      deadline);
  if (!why_not.ok()) return why_not.status();
  if (!can || why_not->empty()) return nccl;
  if (job.job().rank() == 0) {
    LogWarning("'$0' sums on the hosts, from GPU memory: $1", spec.model(),
               *why_not);
  }
  spec.set_ring_backend("host");
  return std::nullopt;
}

}  // namespace psring
