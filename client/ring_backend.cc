#include "client/ring_backend.h"

#include <utility>

#include "common/log.h"

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
        takes_local_steps ? "--local-steps, whose steps are the CPU's"
                          : "--compress");
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

}  // namespace psring
