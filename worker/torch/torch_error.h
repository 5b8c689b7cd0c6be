// What libtorch throws, as a status.
#ifndef PSRING_WORKER_TORCH_TORCH_ERROR_H_
#define PSRING_WORKER_TORCH_TORCH_ERROR_H_

#include <exception>

#include "absl/status/status.h"

namespace psring {

// INTERNAL with the exception's message, without libtorch's stack trace.
absl::Status TorchError(const std::exception& error);

}  // namespace psring

#endif  // PSRING_WORKER_TORCH_TORCH_ERROR_H_
