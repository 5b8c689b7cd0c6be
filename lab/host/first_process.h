// What the first process of a container owes to the others there.
#ifndef PSRING_LAB_HOST_FIRST_PROCESS_H_
#define PSRING_LAB_HOST_FIRST_PROCESS_H_

#include <vector>

#include "absl/status/statusor.h"

namespace psring {

// Starts argv (null at its end) as a child that has this process's terminal and
// files, hands on the signals that it gets, and reaps every process that ends.
// To the first process of a container the kernel sends no signal that it does
// not catch, so that a program in its place would outlive SIGTERM. Returns when
// the child has ended: its exit code, or 128 and its signal. UNAVAILABLE: it
// cannot be started. Before any other thread exists; signals stay blocked.
absl::StatusOr<int> RunAsFirstProcess(const std::vector<char*>& argv);

}  // namespace psring

#endif  // PSRING_LAB_HOST_FIRST_PROCESS_H_
