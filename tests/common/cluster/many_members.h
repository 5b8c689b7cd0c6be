// What a job of many processes costs its coordinator, which has a process of
// its own here.
#ifndef PSRING_TESTS_COMMON_CLUSTER_MANY_MEMBERS_H_
#define PSRING_TESTS_COMMON_CLUSTER_MANY_MEMBERS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace psring {

struct CoordinatorCost {
  absl::Duration cpu;  // of all threads of its process
  int64_t peak_memory_bytes = 0;
  absl::Duration wall;  // from the first Join to the last Leave
};

// `members` workers of a ring join, meet at a barrier, and leave. Blocks. They
// are threads of this process, which must have no others when it calls.
absl::StatusOr<CoordinatorCost> RunManyMembers(int members);

}  // namespace psring

#endif  // PSRING_TESTS_COMMON_CLUSTER_MANY_MEMBERS_H_
