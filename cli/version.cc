#include "cli/version.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cli/commit.h"
#include "common/net/zmq_info.h"
#include "gpu/device.h"
#include "lab/host/arguments.h"
#include "lab/host/capture.h"

namespace psring {

std::string BuiltCommit() { return kCommit; }

absl::StatusOr<Libtorch> FindLibtorch(const std::string& worker_binary) {
  auto lines = Capture({worker_binary, "--version"});
  if (!lines.ok()) return lines.status();
  Libtorch found;
  for (absl::string_view line : *lines) {
    if (absl::ConsumePrefix(&line, "libtorch "))
      found.version = std::string(line);
    if (absl::ConsumePrefix(&line, "libtorch's CUDA "))
      found.cuda = std::string(line);
    if (absl::ConsumePrefix(&line, "libtorch's folder "))
      found.folder = std::string(line);
  }
  if (!found.version.empty()) return found;
  return absl::NotFoundError(
      absl::StrCat(worker_binary, " --version does not name libtorch"));
}

int PrintVersion() {
  const auto torch = FindLibtorch(Binaries().worker);
  std::cout << "psring " << BuiltCommit() << "\nlibtorch "
            << (torch.ok() ? torch->version : "not built") << "\nZeroMQ "
            << ZmqVersion() << "\nCUDA " << BuiltCudaVersion() << std::endl;
  return 0;
}

}  // namespace psring
