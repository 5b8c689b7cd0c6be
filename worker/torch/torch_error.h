// What libtorch throws, as a status.
#ifndef PSRING_WORKER_TORCH_TORCH_ERROR_H_
#define PSRING_WORKER_TORCH_TORCH_ERROR_H_

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

namespace psring {

// An error of psring's on its way through libtorch.
class StatusError : public std::runtime_error {
 public:
  explicit StatusError(absl::Status status)
      : std::runtime_error(std::string(status.message())),
        status_(std::move(status)) {}

  const absl::Status& status() const { return status_; }

 private:
  absl::Status status_;
};

// INTERNAL with the exception's message, without libtorch's stack trace.
// RESOURCE_EXHAUSTED where memory has run out: of a GPU, libtorch says how much
// is allocated, reserved and free.
absl::Status TorchError(const std::exception& error);

// What `body` returns; or what it throws: a StatusError's status,
// RESOURCE_EXHAUSTED with the remedy where a thread cannot be had, and
// libtorch's errors after what was done when it threw, for want of memory with
// the remedy.
absl::Status CatchTorchErrors(absl::FunctionRef<absl::Status()> body,
                              absl::FunctionRef<std::string()> doing);

}  // namespace psring

#endif  // PSRING_WORKER_TORCH_TORCH_ERROR_H_
