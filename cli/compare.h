// `psring compare`: one model, trained in several ways on this host.
#ifndef PSRING_CLI_COMPARE_H_
#define PSRING_CLI_COMPARE_H_

#include "lab/host/arguments.h"

namespace psring {

// The exit code: 0, or that of the process which failed first, or 128 + the
// signal when interrupted.
int RunCompare(const Args& args);

}  // namespace psring

#endif  // PSRING_CLI_COMPARE_H_
