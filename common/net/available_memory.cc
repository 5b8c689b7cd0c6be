#include "common/net/available_memory.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/control_groups.h"

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
  const char* limit;
  const char* used;
  const char* inactive_file;  // of memory.stat
  const char* active_file;
};
constexpr Names kV1 = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                       "total_inactive_file", "total_active_file"};
constexpr Names kV2 = {"memory.max", "memory.current", "inactive_file",
                       "active_file"};

int64_t LeftIn(const std::string& group, const Names& names) {
  const auto limit = ReadNumber(absl::StrCat(group, "/", names.limit));
  const auto used = ReadNumber(absl::StrCat(group, "/", names.used));
  if (!limit.has_value() || !used.has_value()) return kNoBound;
  const int64_t page_cache = SumOf(absl::StrCat(group, "/memory.stat"),
                                   names.inactive_file, names.active_file);
  return std::max<int64_t>(0,
                           *limit - std::max<int64_t>(0, *used - page_cache));
}

}  // namespace

int64_t AvailableMemory(const std::string& root) {
  const int64_t of_host =
      SumOf(absl::StrCat(root, "/proc/meminfo"), "MemAvailable:", "");
  int64_t available = of_host > 0 ? of_host << 10 : kNoBound;
  for (const ControlGroup& group : ControlGroups("memory", root)) {
    available =
        std::min(available, LeftIn(group.path, group.version_1 ? kV1 : kV2));
  }
  return available;
}

}  // namespace psring
