// One NCCL communicator, used by one caller at a time: NCCL allows no more, not
// even the question for errors beside it, which finishes work of its own.
//
// Thread-safe: one thread makes and ends it, another launches, a third asks and
// aborts.
#ifndef PSRING_RING_NCCL_NCCL_HANDLE_H_
#define PSRING_RING_NCCL_NCCL_HANDLE_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/mutex.h"
#include "ring/nccl/nccl_api.h"

namespace psring {

class NcclHandle {
 public:
  using Use = absl::FunctionRef<NcclResult(const NcclApi&, NcclComm)>;

  explicit NcclHandle(NcclApi api) : api_(std::move(api)) {}
  // Leaks what was neither destroyed nor aborted.
  ~NcclHandle() = default;
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  const NcclApi& api() const { return api_; }

  // Begins to connect all ranks; TryState says when they are.
  absl::Status Init(int num_ranks, const NcclId& id, int rank);

  // Calls `use` when it is its turn; kNcclInProgress is no error. ABORTED once
  // it has been ended. Blocks as long as other callers' calls do.
  absl::Status Call(Use use);

  // kNcclInProgress while NCCL prepares what was asked of it. Nothing: somebody
  // else is using it, or it has ended.
  std::optional<NcclResult> TryState();

  // What NCCL says of a result.
  std::string Describe(NcclResult result) const;

  // Both free it; later calls do nothing. Abort may block for ever, also behind
  // a call that does.
  absl::Status Destroy();
  void Abort();

 private:
  // Waits for its turn; null once it has ended.
  NcclComm Take();
  void Return();
  // Takes it from everybody.
  NcclComm End();

  const NcclApi api_;

  Mutex mutex_;
  NcclComm comm_ ABSL_GUARDED_BY(mutex_) = nullptr;
  bool in_use_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace psring

#endif  // PSRING_RING_NCCL_NCCL_HANDLE_H_
