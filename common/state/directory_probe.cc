#include "common/state/directory_probe.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

constexpr char kShared[] =
    ". Every server writes its part of a checkpoint: the directory must be one "
    "that all hosts share";

}  // namespace

absl::StatusOr<std::string> MakeProbe(const std::string& directory) {
  std::string path = absl::StrCat(directory, "/", kProbePrefix, "XXXXXX");
  const int fd = mkstemp(path.data());
  if (fd < 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot write into ", directory, ": ", strerror(errno)));
  }
  close(fd);
  return path;
}

absl::Status ProbeFolderOf(const std::string& file) {
  const std::string directory = file.substr(0, file.rfind('/'));
  const auto probe = MakeProbe(directory);
  if (!probe.ok()) {
    return absl::Status(probe.status().code(),
                        absl::StrCat(probe.status().message(), kShared));
  }
  unlink(probe->c_str());
  if (access(file.c_str(), F_OK) == 0) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      directory, " is not the directory of that name that worker 0 has: ", file,
      ", which worker 0 has just made, is not there", kShared));
}

}  // namespace psring
