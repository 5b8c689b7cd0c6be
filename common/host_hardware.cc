#include "common/host_hardware.h"

#include <sys/sysinfo.h>

#include <fstream>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace psring {

std::string CpuName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (absl::StartsWith(line, "model name") && colon != std::string::npos) {
      return std::string(absl::StripAsciiWhitespace(line.substr(colon + 2)));
    }
  }
  return "unknown";
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

int64_t MemoryBytes() {
  struct sysinfo info = {};
  if (sysinfo(&info) != 0) return 0;
  return static_cast<int64_t>(info.totalram) * info.mem_unit;
}

}  // namespace psring
