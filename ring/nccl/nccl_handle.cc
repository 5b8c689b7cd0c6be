#include "ring/nccl/nccl_handle.h"

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

bool IsFine(NcclResult result) {
  return result == kNcclSuccess || result == kNcclInProgress;
}

}  // namespace

absl::Status NcclHandle::Init(int num_ranks, const NcclId& id, int rank) {
  {
    MutexLock lock(&mutex_);
    if (ended_) return absl::AbortedError("NCCL has been aborted");
    in_use_ = true;
  }
  NcclComm comm = nullptr;
  const NcclResult result = api_.init_rank(&comm, num_ranks, id, rank);
  {
    MutexLock lock(&mutex_);
    comm_ = comm;
    in_use_ = false;
  }
  if (IsFine(result)) return absl::OkStatus();
  return absl::InternalError(Describe(result));
}

NcclComm NcclHandle::Take() {
  MutexLock lock(&mutex_);
  mutex_.Await([this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return !in_use_ || ended_;
  });
  if (ended_ || comm_ == nullptr) return nullptr;
  in_use_ = true;
  return comm_;
}

void NcclHandle::Return() {
  MutexLock lock(&mutex_);
  in_use_ = false;
}

absl::Status NcclHandle::Call(Use use) {
  const NcclComm comm = Take();
  if (comm == nullptr) return absl::AbortedError("NCCL has been aborted");
  const NcclResult result = use(api_, comm);
  Return();
  if (IsFine(result)) return absl::OkStatus();
  return absl::InternalError(Describe(result));
}

std::optional<NcclResult> NcclHandle::TryState() {
  NcclComm comm = nullptr;
  {
    MutexLock lock(&mutex_);
    if (in_use_ || ended_ || comm_ == nullptr) return std::nullopt;
    in_use_ = true;
    comm = comm_;
  }
  NcclResult state = kNcclSuccess;
  const NcclResult result = api_.async_error(comm, &state);
  Return();
  return IsFine(result) ? state : result;
}

std::string NcclHandle::Describe(NcclResult result) const {
  const std::string more = api_.last_error();
  return absl::StrCat("NCCL: ", api_.error_string(result),
                      more.empty() ? "" : absl::StrCat(" (", more, ")"));
}

NcclComm NcclHandle::End() {
  MutexLock lock(&mutex_);
  if (ended_) return nullptr;
  ended_ = true;
  mutex_.Await([this]()
                   ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return !in_use_; });
  return comm_;
}

absl::Status NcclHandle::Destroy() {
  const NcclComm comm = End();
  if (comm == nullptr) return absl::OkStatus();
  const NcclResult result = api_.destroy(comm);
  if (IsFine(result)) return absl::OkStatus();
  return absl::InternalError(Describe(result));
}

void NcclHandle::Abort() {
  const NcclComm comm = End();
  if (comm != nullptr) api_.abort(comm);
}

}  // namespace psring
