// Where all threads of this process are, for somebody who asks why it does not
// get on.
#ifndef PSRING_COMMON_PROCESS_STACKS_H_
#define PSRING_COMMON_PROCESS_STACKS_H_

#include <string>

#include "absl/time/time.h"

namespace psring {

// What each thread says that it does or waits for (activity.h), and each one's
// stack, innermost call first. Takes a moment of every thread; of one that does
// not answer within `patience`, since it blocks signals as ZeroMQ's do, it says
// what the kernel has it wait in. One caller at a time.
std::string ThreadsReport(absl::Duration patience);

}  // namespace psring

#endif  // PSRING_COMMON_PROCESS_STACKS_H_
