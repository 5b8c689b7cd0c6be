// psring top.
#ifndef PSRING_CLI_TOP_H_
#define PSRING_CLI_TOP_H_

#include "lab/host/arguments.h"

namespace psring {

// Returns the exit code.
int RunTop(const Args& args);

}  // namespace psring

#endif  // PSRING_CLI_TOP_H_
