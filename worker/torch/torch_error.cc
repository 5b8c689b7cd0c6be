#include "worker/torch/torch_error.h"

#include <c10/util/Exception.h>

#include <new>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/process/thread_limit.h"

namespace psring {

absl::Status TorchError(const std::exception& error) {
  const auto* torch_error = dynamic_cast<const c10::Error*>(&error);
  const char* what = torch_error == nullptr
                         ? error.what()
                         : torch_error->what_without_backtrace();
  const bool no_memory =
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
      dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      absl::StrContains(what, "DefaultCPUAllocator");
  return no_memory ? absl::ResourceExhaustedError(what)
                   : absl::InternalError(what);
}

absl::Status CatchTorchErrors(absl::FunctionRef<absl::Status()> body,
                              absl::FunctionRef<std::string()> doing) {
  try {
    return CatchNoThread(body);
  } catch (const StatusError& error) {
    return error.status();
  } catch (const std::exception& error) {
    const absl::Status status = TorchError(error);
    return absl::Status(
        status.code(),
        absl::StrCat(doing(), ": libtorch: ", status.message(),
                     absl::IsResourceExhausted(status)
                         ? ". Less --batch-size, another --model, or a device "
                           "with more memory"
                         : ""));
  }
}

}  // namespace psring
