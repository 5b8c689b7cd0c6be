// How messages name the processes of a job.
#ifndef PSRING_COMMON_CLUSTER_PROCESS_NAMES_H_
#define PSRING_COMMON_CLUSTER_PROCESS_NAMES_H_

#include <string>

#include "absl/time/time.h"
#include "protos/cluster.pb.h"

namespace psring {

// "ps" or "worker".
const char* NameOf(proto::Role role);
// "ring" or "ps".
const char* NameOf(proto::Mode mode);

// "worker 3"; "worker" while it has no rank yet.
std::string NameAndRank(const proto::Process& process);

// "worker 3 (host b, pid 4711)".
std::string Describe(const proto::Process& process);
// The same of one that would like to join.
std::string Describe(const proto::Join& join);

// "1.5 s".
std::string DescribeSeconds(absl::Duration duration);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_PROCESS_NAMES_H_
