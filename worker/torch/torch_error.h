// What libtorch throws, as a status.
#ifndef PSRING_WORKER_TORCH_TORCH_ERROR_H_
#define PSRING_WORKER_TORCH_TORCH_ERROR_H_

#include <exception>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace psring {

// INTERNAL with the exception's message, without libtorch's stack trace.
// RESOURCE_EXHAUSTED where memory has run out: of a GPU, libtorch says how much
// is allocated, reserved and free.
absl::Status TorchError(const std::exception& error);

// What `body` returns; or what it throws, after what was done when it did, and
// for want of memory with the remedy.
absl::Status CatchTorchErrors(absl::FunctionRef<absl::Status()> body,
                              absl::FunctionRef<std::string()> doing);

}  // namespace psring

#endif  // PSRING_WORKER_TORCH_TORCH_ERROR_H_
