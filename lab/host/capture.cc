#include "lab/host/capture.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/cancellation.h"
#include "lab/host/supervisor.h"

namespace psring {

absl::StatusOr<std::vector<std::string>> Capture(std::vector<std::string> argv,
                                                 absl::Duration timeout) {
  std::vector<std::string> lines;
  SupervisorOptions options;
  options.on_line = [&](const std::string&, absl::string_view line) {
    lines.emplace_back(line);
  };
  const Cancellation never;
  Supervisor supervisor(never, options);
  const std::string program = argv[0];
  if (auto s = supervisor.Start({program, std::move(argv)}); !s.ok()) return s;
  const absl::Status s = supervisor.RunUntil(
      [&] { return supervisor.AllEnded(); }, Now() + timeout);
  if (supervisor.first_failure()) {
    return absl::AbortedError(ToString(*supervisor.first_failure()));
  }
  if (!s.ok()) {
    return absl::DeadlineExceededError(absl::StrCat(
        program, " has not ended within ", absl::FormatDuration(timeout)));
  }
  return lines;
}

}  // namespace psring
