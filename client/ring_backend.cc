#include "client/ring_backend.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/cluster/environment.h"
#include "common/cluster/host_of.h"
#include "common/cluster/process_names.h"
#include "common/log.h"
#include "common/net/address.h"
#include "common/optim/sync_policy.h"
#include "common/printable.h"

namespace psring {

absl::StatusOr<std::optional<NcclApi>> ChooseRingBackend(
    const std::string& wish, bool on_gpu, proto::JobSpec& spec,
    const NcclLoader& load) {
  if (spec.mode() != proto::RING) return std::nullopt;
  spec.set_ring_backend("host");
  const bool takes_local_steps = spec.local_steps() > 1;
  const bool must = wish == "nccl";
  if (must && !on_gpu) {
    return absl::InvalidArgumentError(
        "--ring-backend=nccl needs a GPU: --device=cuda says what is missing");
  }
  if (must && takes_local_steps) {
    return absl::InvalidArgumentError(
        "--local-steps averages on the host: use --ring-backend=host");
  }
  if (!on_gpu || wish == "host") return std::nullopt;
  if (takes_local_steps || spec.compress() != "none") {
    LogWarning(
        "sums on the host, from GPU memory: NCCL has no $0. "
        "--ring-backend=host says that this is meant",
        takes_local_steps ? "--local-steps" : "--compress");
    return std::nullopt;
  }
  auto nccl = load();
  if (nccl.ok()) {
    spec.set_ring_backend("nccl");
    return *std::move(nccl);
  }
  if (must) return nccl.status();
  LogWarning("sums on the host, from GPU memory: $0", nccl.status().message());
  return std::nullopt;
}

std::string ReasonAgainstNccl(absl::Span<const std::string> gpus,
                              const proto::Welcome& job, bool may_share) {
  std::map<std::pair<HostId, std::string>, int> owners;
  for (int r = 0; r < static_cast<int>(gpus.size()); ++r) {
    const proto::Process& worker = job.workers(r);
    if (gpus[r].empty()) {
      return absl::StrCat(Describe(worker), " cannot use NCCL");
    }
    const auto [owner, fresh] = owners.insert({{HostOf(worker), gpus[r]}, r});
    if (fresh || may_share) continue;
    return absl::StrCat(Describe(job.workers(owner->second)), " and ",
                        Describe(worker), " have the same GPU, ",
                        Printable(gpus[r]),
                        ", or slices of it (MIG), which NCCL refuses");
  }
  return "";
}

absl::Status AgreeOnNccl(JobClient& job, const NcclVote& vote, Time deadline,
                         proto::JobSpec& spec, std::optional<NcclApi>& nccl) {
  const bool hidden = job.requires_encryption() && !OnOneHost(job.job());
  const auto gpus = job.member().Gather(
      vote.gather, nccl.has_value() && !hidden ? vote.gpu : "", deadline);
  if (!gpus.ok()) return gpus.status();
  if (!nccl.has_value() || vote.must) return absl::OkStatus();
  const std::string why_not =
      hidden ? "--require-encryption, and NCCL does not encrypt what it sends "
               "between hosts"
             : ReasonAgainstNccl(*gpus, job.job(), vote.may_share);
  if (why_not.empty()) return absl::OkStatus();
  if (job.job().rank() == 0) {
    LogWarning("'$0' sums on the hosts, from GPU memory: $1", spec.model(),
               why_not);
  }
  nccl.reset();
  spec.set_ring_backend("host");
  return absl::OkStatus();
}

std::optional<NcclApi> ChooseHostSum(const std::string& wish, bool on_gpu,
                                     const proto::JobSpec& spec,
                                     const NcclLoader& load) {
  if (wish == "off" || !on_gpu || spec.mode() == proto::RING ||
      !TakesEveryGradient(spec) || spec.local_steps() > 1 ||
      !spec.record_dir().empty() || !spec.replay_dir().empty()) {
    return std::nullopt;
  }
  auto nccl = load();
  if (nccl.ok()) return *std::move(nccl);
  LogInfo("each worker pushes its own gradients: $0", nccl.status().message());
  return std::nullopt;
}

absl::Status PrepareNcclNetwork(const proto::Welcome& job,
                                const NcclNetwork& network) {
  if (OnOneHost(job)) return absl::OkStatus();
  if (network.requires_encryption) {
    return absl::FailedPreconditionError(
        "--require-encryption: NCCL does not encrypt what it sends between "
        "hosts. Give --ring-backend=host, or --mode=ps");
  }
  const std::string interface = InterfaceOf(network.address);
  if (network.protects_own) {
    LogWarning(
        "NCCL does not encrypt what it sends between hosts$0: only what psring "
        "sends itself is protected",
        interface.empty() ? "" : absl::StrCat(", by ", interface));
  }
  if (interface.empty()) {
    LogWarning(
        "no network interface of this host has the address $0, so NCCL chooses "
        "one by itself: set NCCL_SOCKET_IFNAME to choose",
        network.address);
    return absl::OkStatus();
  }
  SetVariables({{"NCCL_SOCKET_IFNAME", absl::StrCat("=", interface)}});
  return absl::OkStatus();
}

}  // namespace psring
