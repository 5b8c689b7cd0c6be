#include "common/host_cores.h"

#include <sched.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/control_groups.h"

namespace psring {
namespace {

constexpr int kMostCores = 1 << 20;

std::string TextOf(const std::string& path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file),
                     std::istreambuf_iterator<char>());
}

// Of microseconds in each period of them; no limit where a group has none.
int CoresOf(absl::string_view quota, absl::string_view period) {
  int64_t time = 0;
  int64_t of = 0;
  if (!absl::SimpleAtoi(quota, &time) || !absl::SimpleAtoi(period, &of) ||
      time <= 0 || of <= 0) {
    return kMostCores;
  }
  return static_cast<int>(std::clamp<int64_t>(time / of, 1, kMostCores));
}

int CoresIn(const ControlGroup& group) {
  if (group.version_1) {
    return CoresOf(TextOf(group.path + "/cpu.cfs_quota_us"),
                   TextOf(group.path + "/cpu.cfs_period_us"));
  }
  // "max 100000", or "150000 100000".
  const std::vector<std::string> words =
      absl::StrSplit(TextOf(group.path + "/cpu.max"), absl::ByAnyChar(" \n"),
                     absl::SkipEmpty());
  return words.size() == 2 ? CoresOf(words[0], words[1]) : kMostCores;
}

int CoresOfAffinity() {
  // A kernel may know of more than cpu_set_t has room for.
  for (int most = CPU_SETSIZE; most <= kMostCores; most *= 2) {
    const size_t bytes = CPU_ALLOC_SIZE(most);
    const std::unique_ptr<cpu_set_t, void (*)(cpu_set_t*)> cores(
        CPU_ALLOC(most), [](cpu_set_t* set) { CPU_FREE(set); });
    if (sched_getaffinity(0, bytes, cores.get()) == 0) {
      return std::max(1, CPU_COUNT_S(bytes, cores.get()));
    }
    if (errno != EINVAL) break;
  }
  return 1;
}

}  // namespace

int CoresOfQuota(const std::string& root) {
  int least = kMostCores;
  for (const ControlGroup& group : ControlGroups("cpu", root)) {
    least = std::min(least, CoresIn(group));
  }
  return least == kMostCores ? 0 : least;
}

int HostCores() {
  static const int quota = CoresOfQuota();
  const int cores = CoresOfAffinity();
  return quota > 0 ? std::min(quota, cores) : cores;
}

}  // namespace psring
