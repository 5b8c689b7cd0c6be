// The signal that makes a thread write its stack down (process/stacks.h), which
// no thread blocks; libraries leave it be.
#ifndef PSRING_COMMON_STACK_SIGNAL_H_
#define PSRING_COMMON_STACK_SIGNAL_H_

#include <signal.h>

namespace psring {

inline int StackSignal() { return SIGRTMIN + 9; }

}  // namespace psring

#endif  // PSRING_COMMON_STACK_SIGNAL_H_
