#include "cli/command.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

void AddBinaryFlags(CommandLine& line, Binaries& binaries) {
  line.Add("--ps-binary", binaries.ps, "").Hidden();
  line.Add("--worker-binary", binaries.worker, "").Hidden();
  line.Add("--rank-binary", binaries.rank, "").Hidden();
}

absl::Status OfFlag(const std::string& flag, const absl::Status& status) {
  return absl::InvalidArgumentError(absl::StrCat(flag, ": ", status.message()));
}

int Fail(const std::string& command, const absl::Status& status,
         int exit_code) {
  std::cerr << command << ": " << status.message() << std::endl;
  return exit_code;
}

int ExitCode(const std::string& command, const absl::Status& status,
             int signal) {
  if (signal != 0) {
    return Fail(command,
                absl::CancelledError("interrupted; all processes have ended"),
                128 + signal);
  }
  return status.ok() ? 0 : Fail(command, status);
}

std::string DateAndTime() {
  return absl::FormatTime("%Y-%m-%d %H:%M %Z", WallNow(),
                          absl::LocalTimeZone());
}

}  // namespace psring
