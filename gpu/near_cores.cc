#include "gpu/near_cores.h"

#include <sched.h>

#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace psring {
namespace {

namespace fs = std::filesystem;

// Of `thread`; 0: the calling one.
int KeepThreadTo(const cpu_set_t& cores, pid_t thread) {
  cpu_set_t allowed;
  if (sched_getaffinity(thread, sizeof(allowed), &allowed) != 0) return 0;
  cpu_set_t both;
  CPU_AND(&both, &allowed, &cores);
  const int count = CPU_COUNT(&both);
  if (count == 0 || sched_setaffinity(thread, sizeof(both), &both) != 0) {
    return 0;
  }
  return count;
}

}  // namespace

std::vector<int> CoresNear(const std::string& bus_id,
                           const std::string& sysfs) {
  std::ifstream file(
      absl::StrCat(sysfs, "/bus/pci/devices/", bus_id, "/local_cpulist"));
  std::string text;  // "0-15,32-47"
  std::getline(file, text);
  std::vector<int> cores;
  for (const absl::string_view run :
       absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> ends =
        absl::StrSplit(run, absl::MaxSplits('-', 1));
    int first = 0;
    int last = 0;
    if (!absl::SimpleAtoi(ends.first, &first) ||
        !absl::SimpleAtoi(ends.second.empty() ? ends.first : ends.second,
                          &last) ||
        first < 0 || last >= CPU_SETSIZE) {
      return {};
    }
    for (int core = first; core <= last; ++core) cores.push_back(core);
  }
  return cores;
}

int NumNear(const std::string& bus_id, absl::Span<const std::string> bus_ids,
            const std::string& sysfs) {
  const std::vector<int> cores = CoresNear(bus_id, sysfs);
  return static_cast<int>(
      absl::c_count_if(bus_ids, [&](const std::string& other) {
        return CoresNear(other, sysfs) == cores;
      }));
}

int KeepTo(absl::Span<const int> cores) {
  cpu_set_t wanted;
  CPU_ZERO(&wanted);
  for (const int core : cores) CPU_SET(core, &wanted);
  const int left = KeepThreadTo(wanted, 0);
  if (left == 0) return 0;
  std::error_code error;  // of threads that have ended meanwhile
  for (fs::directory_iterator task("/proc/self/task", error), end;
       !error && task != end; task.increment(error)) {
    int id = 0;
    if (absl::SimpleAtoi(task->path().filename().string(), &id)) {
      KeepThreadTo(wanted, id);
    }
  }
  return left;
}

}  // namespace psring
