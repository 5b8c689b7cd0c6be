#include "python/capi/script_gpu.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/types/span.h"
#include "common/cluster/host_of.h"
#include "common/cluster/membership.h"
#include "common/log.h"
#include "common/optim/policies.h"

namespace psring {
namespace {

// Why not all of them can sum by NCCL; "" where they can. `gpus[r]` is the bus
// of worker r's GPU, or "" where that worker cannot.
std::string WhyNot(absl::Span<const std::string> gpus,
                   const proto::Welcome& job) {
  std::map<std::pair<HostId, std::string>, int> owners;
  for (int r = 0; r < static_cast<int>(gpus.size()); ++r) {
    const proto::Process& worker = job.workers(r);
    if (gpus[r].empty()) {
      return absl::StrCat(Describe(worker), " cannot use NCCL");
    }
    const auto [owner, fresh] = owners.insert({{HostOf(worker), gpus[r]}, r});
    if (fresh) continue;
    return absl::StrCat(Describe(job.workers(owner->second)), " and ",
                        Describe(worker), " have the same GPU, ", gpus[r]);
  }
  return "";
}

}  // namespace

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
  const auto gpus =
      job.member().Gather(absl::StrCat("gpus of ", spec.model()),
                          can ? device.info().bus_id : std::string(), deadline);
  if (!gpus.ok()) return gpus.status();
  if (!can) return nccl;
  const std::string why_not = WhyNot(*gpus, job.job());
  if (why_not.empty()) return nccl;
  if (job.job().rank() == 0) {
    LogWarning("'$0' sums on the hosts, from GPU memory: $1", spec.model(),
               why_not);
  }
  spec.set_ring_backend("host");
  return std::nullopt;
}

}  // namespace psring
