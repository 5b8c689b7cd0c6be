#include "tests/testing/run_psring.h"

#include "absl/strings/str_cat.h"
#include "common/net/cancellation.h"
#include "lab/host/supervisor.h"

namespace psring {

std::vector<std::string> PsringArgv(const std::vector<std::string>& args) {
  std::vector<std::string> argv = {"cli/psring", args[0]};
  if (args[0][0] != '-') {
    argv.push_back("--ps-binary=tests/lab/host/fake_process");
    argv.push_back("--worker-binary=tests/lab/host/fake_process");
  }
  argv.insert(argv.end(), args.begin() + 1, args.end());
  return argv;
}

Ran RunPsring(const std::vector<std::string>& args) {
  Ran ran;
  SupervisorOptions options;
  options.on_line = [&](const std::string&, absl::string_view line) {
    absl::StrAppend(&ran.output, line, "\n");
  };
  const Cancellation never;
  Supervisor supervisor(never, options);
  const absl::Status started = supervisor.Start({"psring", PsringArgv(args)});
  if (!started.ok()) return {-1, std::string(started.message())};
  supervisor.Wait();
  if (const auto& failure = supervisor.first_failure()) {
    ran.code = failure->ending.shell_code();
  }
  return ran;
}

}  // namespace psring
