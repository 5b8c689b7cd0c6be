// The control groups (cgroups, version 1 and 2) that limit what this process
// may use, as containers and Slurm set them up.
#ifndef PSRING_COMMON_CONTROL_GROUPS_H_
#define PSRING_COMMON_CONTROL_GROUPS_H_

#include <string>
#include <vector>

namespace psring {

struct ControlGroup {
  std::string path;  // its directory
  bool version_1 = false;
};

// Of this process, and those around it, for a controller ("cpu", "memory"). Not
// all of them need exist: in a container the kernel tells the path that a group
// has on the host, and what is mounted is the container's own. `root`: where
// /proc and /sys are.
std::vector<ControlGroup> ControlGroups(const std::string& controller,
                                        const std::string& root);

}  // namespace psring

#endif  // PSRING_COMMON_CONTROL_GROUPS_H_
