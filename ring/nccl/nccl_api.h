// The functions of NCCL that psring calls, as a table: the real one is filled
// from libnccl.so.2 while running, so that binaries start where there is none;
// a fake one shows on any machine what happens when NCCL hangs.
//
// Types and numbers are those of nccl.h (2.28 or newer); nccl_library.cc, which
// includes it, asserts that.
#ifndef PSRING_RING_NCCL_NCCL_API_H_
#define PSRING_RING_NCCL_NCCL_API_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace psring {

using NcclComm = void*;  // ncclComm_t
using NcclResult = int;  // ncclResult_t

inline constexpr NcclResult kNcclSuccess = 0;
inline constexpr NcclResult kNcclRemoteError = 6;
inline constexpr NcclResult kNcclInProgress = 7;

struct NcclId {  // ncclUniqueId
  char bytes[128];
};

// All of float32, with the sum; streams are cudaStream_t. A communicator does
// not block: a call may return kNcclInProgress, and `async_error` says when it
// is through; before that, nothing is in the stream. One call at a time for a
// communicator, `async_error` included (ring/nccl/nccl_handle.h).
struct NcclApi {
  std::function<NcclResult(int* version)> version;  // 23203: 2.32.3
  std::function<std::string(NcclResult)> error_string;
  std::function<std::string()> last_error;  // more of it, of any communicator
  std::function<NcclResult(NcclId*)> unique_id;
  // ncclCommInitRankConfig with blocking = 0.
  std::function<NcclResult(NcclComm*, int num_ranks, const NcclId&, int rank)>
      init_rank;
  std::function<NcclResult(NcclComm, NcclResult* state)> async_error;
  std::function<NcclResult(NcclComm)> finalize;
  std::function<NcclResult(NcclComm)> destroy;
  std::function<NcclResult(NcclComm)> abort;
  std::function<NcclResult()> group_start;
  std::function<NcclResult()> group_end;
  std::function<NcclResult(const float* in, float* out, size_t count, NcclComm,
                           void* stream)>
      all_reduce;
  std::function<NcclResult(const float* in, float* out, size_t count, int root,
                           NcclComm, void* stream)>
      broadcast;
  // ncclCommRegister and ncclCommDeregister.
  std::function<NcclResult(NcclComm, void* data, size_t size_bytes,
                           void** handle)>
      register_buffer;
  std::function<NcclResult(NcclComm, void* handle)> deregister_buffer;
};

// "2.32.3".
std::string NcclVersionName(int version);

// What NCCL has to find in the environment before it lets rank `rank` share a
// GPU: it refuses two ranks on one GPU of one host, so it has to believe in as
// many hosts, and, where all ranks are on one, to reach them by the loopback
// device. Never for speed.
std::map<std::string, std::string> SharedGpuVariables(int rank,
                                                      bool on_one_host);

// From libnccl.so.2, which stays loaded: the one that this process has loaded
// already or the system knows, else the first in `directories`. UNIMPLEMENTED:
// psring was built without CUDA; NOT_FOUND: there is no such library, with
// where it was looked for; FAILED_PRECONDITION: it is older than 2.28. All say
// what to do.
absl::StatusOr<NcclApi> LoadNccl(
    absl::Span<const std::string> directories = {});

}  // namespace psring

#endif  // PSRING_RING_NCCL_NCCL_API_H_
