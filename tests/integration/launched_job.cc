#include "tests/integration/launched_job.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {
namespace {

std::optional<std::string> Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream bytes;
  bytes << file.rdbuf();
  return bytes.str();
}

std::string FileDifference(const std::string& a, const std::string& b) {
  const auto bytes_a = Bytes(a), bytes_b = Bytes(b);
  if (!bytes_a) return absl::StrCat("no ", a);
  if (!bytes_b) return absl::StrCat("no ", b);
  if (*bytes_a == *bytes_b) return "";
  const auto first = std::mismatch(bytes_a->begin(), bytes_a->end(),
                                   bytes_b->begin(), bytes_b->end());
  return absl::StrCat(a, " (", bytes_a->size(), " bytes) and ", b, " (",
                      bytes_b->size(), " bytes) differ first at byte ",
                      first.first - bytes_a->begin());
}

}  // namespace

std::vector<std::string> LaunchArgv(const LaunchedJob& job) {
  std::vector<std::string> argv = {
      PsringBinary(),
      "launch",
      absl::StrCat("--mode=", job.mode),
      absl::StrCat("--workers=", job.workers),
      "--threads-per-worker=1",
      absl::StrCat("--ps-binary=", PsBinary()),
      absl::StrCat("--worker-binary=", WorkerBinary())};
  if (job.mode == "ps") argv.push_back(absl::StrCat("--servers=", job.servers));
  argv.insert(argv.end(), job.launch_flags.begin(), job.launch_flags.end());
  argv.push_back("--");
  argv.insert(argv.end(), job.worker_flags.begin(), job.worker_flags.end());
  return argv;
}

Ran RunLaunch(const LaunchedJob& job) {
  return RunProcess(LaunchArgv(job), Now() + absl::Minutes(10));
}

std::string CheckpointAt(const std::string& checkpoint_dir, int64_t step) {
  return absl::StrFormat("%s/step-%08d", checkpoint_dir, step);
}

std::string CheckpointDifference(const std::string& a, const std::string& b) {
  for (const char* file : {"/model.safetensors", "/optimizer.safetensors"}) {
    const std::string difference =
        FileDifference(absl::StrCat(a, file), absl::StrCat(b, file));
    if (!difference.empty()) return difference;
  }
  return "";
}

}  // namespace psring
