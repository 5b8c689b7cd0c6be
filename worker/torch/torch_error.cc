#include "worker/torch/torch_error.h"

#include <c10/util/Exception.h>

namespace psring {

absl::Status TorchError(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  return absl::InternalError(torch_error == nullptr
                                 ? error.what()
                                 : torch_error->what_without_backtrace());
}

}  // namespace psring
