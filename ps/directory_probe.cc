#include "ps/directory_probe.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"

namespace psring {

absl::Status ProbeDirectory(const std::string& directory) {
  std::string path = directory + "/.psring-probe-XXXXXX";
  const int fd = mkstemp(path.data());
  if (fd < 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot write into ", directory, ": ", strerror(errno),
                     ". Every server writes its part of a checkpoint: the "
                     "directory must be one that all hosts share"));
  }
  close(fd);
  unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace psring
