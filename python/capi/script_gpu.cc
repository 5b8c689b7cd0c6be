#include "python/capi/script_gpu.h"

#include <atomic>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/log.h"
#include "common/optim/policies.h"

namespace psring {
namespace {

std::atomic<bool> given_up = false;

}  // namespace

void SetGivenUp(bool value) { given_up = value; }

void ExitBeforeAbort(const absl::Status& why) {
  if (given_up) return;
  absl::SleepFor(absl::Seconds(1));
  if (given_up) return;  // meanwhile
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
  auto nccl = ChooseRingBackend(wish.ring_backend, /*on_gpu=*/true, spec,
                                door.load_nccl);
  if (!nccl.ok() || wish.ring_backend != "auto") return nccl;
  const absl::Status agreed =
      AgreeOnNccl(job,
                  {.gather = absl::StrCat("gpus of ", spec.model()),
                   .gpu = device.info().bus_id},
                  deadline, spec, *nccl);
  if (!agreed.ok()) return agreed;
  return nccl;
}

}  // namespace psring
