#include "common/trace/metrics_file.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/clock.h"
#include "common/log.h"
#include "common/trace/earlier_file.h"

namespace psring {

absl::StatusOr<MetricsFile> MetricsFile::Create(
    const std::string& directory, const proto::Process& process,
    nlohmann::json details, const std::string& tensorboard) {
  MetricsFile metrics;
  const std::string role = process.role() == proto::PS ? "ps" : "worker";
  details["event"] = "start";
  details["time"] = absl::ToDoubleSeconds(WallNow() - absl::UnixEpoch());
  details["role"] = role;
  details["rank"] = process.rank();
  details["host"] = process.host();
  details["pid"] = process.pid();
  if (process.role() == proto::PS || process.rank() == 0) {
    metrics.OpenEvents(tensorboard, details);
  }
  if (directory.empty()) return metrics;
  const std::string path =
      absl::StrCat(directory, "/", role, "-", process.rank(), ".jsonl");
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  KeepEarlierFile(path);
  metrics.file_.open(path, std::ios::trunc);
  if (!metrics.file_ || !metrics.Append(details)) {
    const std::string why = error ? error.message() : strerror(errno);
    return absl::PermissionDeniedError(
        absl::StrCat("--metrics-dir: cannot write ", path, " (", why, ")"));
  }
  metrics.path_ = path;
  return metrics;
}

// A run is called "ring-bsp", or "server-1".
void MetricsFile::OpenEvents(const std::string& tensorboard,
                             const nlohmann::json& details) {
  std::vector<std::string> name;
  for (const char* part : {"mode", "sync"}) {
    if (details.contains(part)) name.push_back(details[part]);
  }
  if (details["role"] == "ps") {
    name = {absl::StrCat("server-", details["rank"].get<int>())};
  }
  events_ = EventFile(tensorboard, absl::StrJoin(name, "-"));
  TextTableRows rows;
  for (const auto& [key, value] : details.items()) {
    rows.emplace_back(
        key, value.is_string() ? value.get<std::string>() : value.dump());
  }
  events_.WriteTable("start", rows);
}

void MetricsFile::Write(const nlohmann::json& line) {
  events_.WriteLine(line);
  if (!file_.is_open() || Append(line)) return;
  LogWarning(
      "--metrics-dir: cannot write $0 ($1). Training continues; the file gets "
      "nothing more of it",
      path_, strerror(errno));
  file_.close();
  // Not half a line, where the disk became full within one.
  std::error_code error;
  std::filesystem::resize_file(path_, whole_lines_, error);
}

bool MetricsFile::Append(const nlohmann::json& line) {
  const std::string text = line.dump();
  file_ << text << std::endl;
  if (!file_) return false;
  whole_lines_ += text.size() + 1;
  return true;
}

int64_t PeakMemoryBytes(int64_t shared_bytes) {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  int64_t mapped_kib = 0;  // of shared memory, this process's and others'
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!absl::StartsWith(line, "RssShmem:")) continue;
    std::istringstream(line.substr(line.find(':') + 1)) >> mapped_kib;
  }
  return (static_cast<int64_t>(usage.ru_maxrss) - mapped_kib) * 1024 +
         shared_bytes;
}

}  // namespace psring
