#include "common/host_cores.h"

#include <sched.h>

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

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

// "max 100000", or "150000 100000".
int CoresOfVersion2(const std::string& group) {
  const std::vector<std::string> words = absl::StrSplit(
      TextOf(group + "/cpu.max"), absl::ByAnyChar(" \n"), absl::SkipEmpty());
  return words.size() == 2 ? CoresOf(words[0], words[1]) : kMostCores;
}

int CoresOfVersion1(const std::string& group) {
  return CoresOf(TextOf(group + "/cpu.cfs_quota_us"),
                 TextOf(group + "/cpu.cfs_period_us"));
}

// The least of a group and those around it. In a container the root is often
// its own group, whatever path the kernel tells.
int LeastOf(const std::string& mount, std::string path,
            int (*cores_of)(const std::string& group)) {
  int least = cores_of(mount);
  while (path.size() > 1) {
    least = std::min(least, cores_of(mount + path));
    path.resize(path.rfind('/'));
  }
  return least;
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

int CoresOfQuota(const std::string& membership, const std::string& root) {
  int least = kMostCores;
  for (const absl::string_view line :
       absl::StrSplit(membership, '\n', absl::SkipEmpty())) {
    // "4:cpu,cpuacct:/docker/1f", or version 2's "0::/user.slice".
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || parts[2].empty() || parts[2][0] != '/') continue;
    if (parts[1].empty()) {
      for (const char* mount : {"", "/unified"}) {
        least =
            std::min(least, LeastOf(root + mount, parts[2], CoresOfVersion2));
      }
      continue;
    }
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (!absl::c_linear_search(controllers, "cpu")) continue;
    for (const std::string& mount : {parts[1], std::string("cpu")}) {
      least = std::min(least, LeastOf(absl::StrCat(root, "/", mount), parts[2],
                                      CoresOfVersion1));
    }
  }
  return least == kMostCores ? 0 : least;
}

int HostCores() {
  static const int quota =
      CoresOfQuota(TextOf("/proc/self/cgroup"), "/sys/fs/cgroup");
  const int cores = CoresOfAffinity();
  return quota > 0 ? std::min(quota, cores) : cores;
}

}  // namespace psring
