#include "common/control_groups.h"

#include <fstream>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace psring {
namespace {

void AddAround(const std::string& mount, std::string path, bool version_1,
               std::vector<ControlGroup>* groups) {
  groups->push_back({mount, version_1});
  while (path.size() > 1) {
    groups->push_back({mount + path, version_1});
    path.resize(path.rfind('/'));
  }
}

}  // namespace

std::vector<ControlGroup> ControlGroups(const std::string& controller,
                                        const std::string& root) {
  const std::string mounts = absl::StrCat(root, "/sys/fs/cgroup");
  std::vector<ControlGroup> groups;
  std::ifstream membership(absl::StrCat(root, "/proc/self/cgroup"));
  std::string line;  // ID:CONTROLLERS:PATH; version 2 names no controllers
  while (std::getline(membership, line)) {
    const std::vector<std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3 || !absl::StartsWith(parts[2], "/")) continue;
    if (parts[1].empty()) {
      AddAround(mounts, parts[2], /*version_1=*/false, &groups);
      continue;
    }
    const std::vector<std::string> controllers = absl::StrSplit(parts[1], ',');
    if (!absl::c_linear_search(controllers, controller)) continue;
    AddAround(absl::StrCat(mounts, "/", controller), parts[2],
              /*version_1=*/true, &groups);
    if (controllers.size() > 1) {  // mounted as "cpu,cpuacct", too
      AddAround(absl::StrCat(mounts, "/", parts[1]), parts[2],
                /*version_1=*/true, &groups);
    }
  }
  return groups;
}

}  // namespace psring
