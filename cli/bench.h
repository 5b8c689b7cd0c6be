// psring bench: the exchange, the links and training, beside their limits and
// their peers.
#ifndef PSRING_CLI_BENCH_H_
#define PSRING_CLI_BENCH_H_

#include "lab/host/arguments.h"

namespace psring {

// Returns the exit code.
int RunBench(const Args& args);

}  // namespace psring

#endif  // PSRING_CLI_BENCH_H_
