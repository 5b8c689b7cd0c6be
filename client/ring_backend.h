// What sums in ring mode: the hosts' own ring, or NCCL on GPUs, and what NCCL
// may use of the network.
#ifndef PSRING_CLIENT_RING_BACKEND_H_
#define PSRING_CLIENT_RING_BACKEND_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "protos/cluster.pb.h"
#include "ring/nccl/nccl_api.h"  // IWYU pragma: export

namespace psring {

using NcclLoader = std::function<absl::StatusOr<NcclApi>()>;

// `wish`: "host", "nccl", or "auto": NCCL where the model lies on a GPU
// (`on_gpu`), nothing in `spec` rules it out and it can be loaded. Sets the
// ring backend of `spec`; a value: it is NCCL. No ring: nothing is done.
// INVALID_ARGUMENT and LoadNccl's errors where NCCL was wished for and cannot
// be had.
absl::StatusOr<std::optional<NcclApi>> ChooseRingBackend(
    const std::string& wish, bool on_gpu, proto::JobSpec& spec,
    const NcclLoader& load = [] { return LoadNccl(); });

// This worker's, of a job over NCCL.
struct NcclNetwork {
  std::string address;  // that psring uses: "10.0.0.2"
  // What psring itself sends is encrypted.
  bool protects_own = false;
  bool requires_encryption = false;
};

// Before the first call of NCCL in a job with several hosts, between which it
// encrypts nothing: keeps it, by an environment variable, to the interface of
// psring's address, and says so in the log. FAILED_PRECONDITION where all has
// to be encrypted.
absl::Status PrepareNcclNetwork(const proto::Welcome& job,
                                const NcclNetwork& network);

}  // namespace psring

#endif  // PSRING_CLIENT_RING_BACKEND_H_
