// Slurm's lists of hosts.
#ifndef PSRING_COMMON_CLUSTER_NODE_LIST_H_
#define PSRING_COMMON_CLUSTER_NODE_LIST_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace psring {

// Slurm's list of hosts, "n[1-2],m[03,05-06]", in order: n1, n2, m03, m05, m06.
// Zero padding is kept, a name may have several brackets. Returns the first
// `max_hosts` names of a longer list; INVALID_ARGUMENT says what is malformed,
// also behind those.
absl::StatusOr<std::vector<std::string>> ExpandNodeList(absl::string_view list,
                                                        int max_hosts);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_NODE_LIST_H_
