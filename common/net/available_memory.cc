#include "common/net/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace psring {
namespace {

constexpr int64_t kNoBound = std::numeric_limits<int64_t>::max();

// The number of a file that holds nothing else; none: there is no such file, or
// it says "max".
std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? std::make_optional(number) : std::nullopt;
}

// The sum of the numbers that follow `first` and `second` in lines of a file.
int64_t SumOf(const std::string& path, const std::string& first,
              const std::string& second) {
  std::ifstream file(path);
  std::string key;
  int64_t number = 0, sum = 0;
  while (file >> key >> number) {
    if (key == first || key == second) sum += number;
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return sum;
}

// How a version of cgroups names what it tells of a group's memory.
struct Names {
  const char* mount;
  const char* limit;
  const char* used;
  const char* inactive_file;  // of memory.stat
  const char* active_file;
};
constexpr Names kV1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                       "memory.usage_in_bytes", "total_inactive_file",
                       "total_active_file"};
constexpr Names kV2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                       "inactive_file", "active_file"};

int64_t LeftIn(const std::string& group, const Names& names) {
  const auto limit = ReadNumber(absl::StrCat(group, "/", names.limit));
  const auto used = ReadNumber(absl::StrCat(group, "/", names.used));
  if (!limit.has_value() || !used.has_value()) return kNoBound;
  const int64_t page_cache = SumOf(absl::StrCat(group, "/memory.stat"),
                                   names.inactive_file, names.active_file);
  return std::max<int64_t>(0,
                           *limit - std::max<int64_t>(0, *used - page_cache));
}

// In a container the path may be that on the host, which is not there: the
// container's own group is then what is mounted.
int64_t LeftAround(const std::string& root, std::string path,
                   const Names& names) {
  const std::string mount = absl::StrCat(root, names.mount);
  int64_t left = LeftIn(mount, names);
  while (path.size() > 1) {
    left = std::min(left, LeftIn(mount + path, names));
    path.resize(path.rfind('/'));
  }
  return left;
}

}  // namespace

int64_t AvailableMemory(const std::string& root) {
  const int64_t of_host =
      SumOf(absl::StrCat(root, "/proc/meminfo"), "MemAvailable:", "");
  int64_t available = of_host > 0 ? of_host << 10 : kNoBound;
  std::ifstream groups(absl::StrCat(root, "/proc/self/cgroup"));
  std::string line;  // ID:CONTROLLERS:PATH; version 2 names no controllers
  while (std::getline(groups, line)) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || !absl::StartsWith(parts[2], "/")) continue;
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    const bool v1 =
        std::count(controllers.begin(), controllers.end(), "memory");
    if (!v1 && !parts[1].empty()) continue;
    available = std::min(available, LeftAround(root, parts[2], v1 ? kV1 : kV2));
  }
  return available;
}

}  // namespace psring
