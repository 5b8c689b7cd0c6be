// What ranks tell one another before NCCL connects them: pure.
#ifndef PSRING_RING_NCCL_NCCL_PEERS_H_
#define PSRING_RING_NCCL_NCCL_PEERS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "protos/cluster.pb.h"
#include "ring/nccl/nccl_api.h"

namespace psring {

struct NcclPeer {
  int version = 0;     // of NCCL
  std::string bus_id;  // of its GPU
  NcclId id = {};      // rank 0's counts
};

std::string EncodeNcclPeer(const NcclPeer& peer);

// The id that all use, out of every rank's text. FAILED_PRECONDITION names the
// two ranks whose versions differ, or that are on one GPU.
absl::StatusOr<NcclId> AgreeOnNcclId(absl::Span<const std::string> texts,
                                     const proto::Welcome& job,
                                     bool allow_shared_gpu);

}  // namespace psring

#endif  // PSRING_RING_NCCL_NCCL_PEERS_H_
