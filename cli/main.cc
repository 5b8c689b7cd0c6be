// psring: one command with subcommands.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstring>
#include <iostream>
#include <string>

#include "cli/bench.h"
#include "cli/command.h"
#include "cli/compare.h"
#include "cli/doctor.h"
#include "cli/gpu_check.h"
#include "cli/keygen.h"
#include "cli/launch.h"
#include "cli/predict.h"
#include "cli/run.h"
#include "cli/timeline.h"
#include "cli/top.h"
#include "cli/usage.h"
#include "cli/version.h"
#include "common/log.h"
#include "common/process/standard_files.h"
#include "common/process/thread_limit.h"

namespace psring {
namespace {

// The two processes are programs of their own. Returns only after an error.
int Become(const std::string& program, const Args& args) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (const std::string& arg : args) {
    argv.push_back(const_cast<char*>(arg.c_str()));
  }
  argv.push_back(nullptr);
  if (absl::Status s = CheckProgram(program); !s.ok()) return Fail("psring", s);
  execv(program.c_str(), argv.data());
  std::cerr << "psring: cannot run " << program << ": " << strerror(errno)
            << std::endl;
  return kExitFailed;
}

// OpenMP's threads, such as libtorch's, wait for each other by polling. GNU's
// would poll for up to 20 ms before they sleep, and keep the cores from
// servers, other workers and other programs. It reads this as a program starts.
void LimitPolling() {
  if (getenv("OMP_WAIT_POLICY") == nullptr) {
    setenv("GOMP_SPINCOUNT", "10000", /*overwrite=*/0);  // about 0.5 ms
  }
}

// All users of a host can read a process's words, and a page's address has its
// token.
void HideTokens(char** begin, char** end) {
  for (char** word = begin; word != end; ++word) {
    if (strncmp(*word, "http://", strlen("http://")) != 0) continue;
    char* const token = strstr(*word, "token=");
    if (token != nullptr) memset(token, 'x', strlen(token));
  }
}

int Main(const Args& all) {
  const std::string subcommand = all.empty() ? "--help" : all[0];
  const Args args(all.empty() ? all.end() : all.begin() + 1, all.end());
  if (subcommand == "ps") return Become(Binaries().ps, args);
  if (subcommand == "worker") return Become(Binaries().worker, args);
  if (subcommand == "run") return RunScript(args);
  if (subcommand == "launch") return Launch(args);
  if (subcommand == "compare") return RunCompare(args);
  if (subcommand == "bench") return RunBench(args);
  if (subcommand == "predict") return RunPredict(args);
  if (subcommand == "timeline") return RunTimeline(args);
  if (subcommand == "top") return RunTop(args);
  if (subcommand == "keygen") return Keygen(args);
  if (subcommand == "doctor") return Doctor(args);
  if (subcommand == "gpu-check") return GpuCheck(args);
  if (subcommand == "--version") return PrintVersion();
  if (subcommand == "--help" || subcommand == "-h" || subcommand == "help") {
    std::cout << kUsage;
    return 0;
  }
  // A wheel or a bundle lists them, too.
  const bool of_repository = subcommand == "build" || subcommand == "wheel" ||
                             subcommand == "bundle" || subcommand == "test";
  std::cerr << "psring: "
            << (of_repository
                    ? "only ./psring of the repository has the command "
                    : "unknown command ")
            << subcommand << " (see psring --help)" << std::endl;
  return kExitUsage;
}

}  // namespace
}  // namespace psring

int main(int argc, char** argv) {
  psring::OpenStandardFiles();
  // Where whoever started this program ignores it, and exec keeps that, the
  // kernel tells nobody how processes end.
  signal(SIGCHLD, SIG_DFL);
  psring::EndWhereNoThreadStarts("psring");
  psring::LimitPolling();
  psring::SetUpLog("info");
  const psring::Args args(argv + 1, argv + argc);
  psring::HideTokens(argv + 1, argv + argc);
  return psring::Main(args);
}
