#include "cli/version.h"

#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/commit.h"
#include "common/net/zmq_info.h"
#include "gpu/device.h"
#include "lab/host/arguments.h"
#include "lab/host/capture.h"

namespace psring {

std::string BuiltCommit() { return kCommit; }

absl::StatusOr<std::string> LibtorchVersion(const std::string& worker_binary) {
  auto lines = Capture({worker_binary, "--version"});
  if (!lines.ok()) return lines.status();
  constexpr absl::string_view kPrefix = "libtorch ";
  for (const std::string& line : *lines) {
    if (absl::StartsWith(line, kPrefix)) return line.substr(kPrefix.size());
  }
  return absl::NotFoundError(
      absl::StrCat(worker_binary, " --version does not name libtorch"));
}

int PrintVersion() {
  const auto torch = LibtorchVersion(Binaries().worker);
  std::cout << "psring " << BuiltCommit() << "\nlibtorch "
            << (torch.ok() ? *torch : "not built") << "\nZeroMQ "
            << ZmqVersion() << "\nCUDA " << BuiltCudaVersion() << std::endl;
  return 0;
}

}  // namespace psring
