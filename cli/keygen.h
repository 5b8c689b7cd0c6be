// psring keygen: makes the key that the processes of jobs on several hosts
// share.
#ifndef PSRING_CLI_KEYGEN_H_
#define PSRING_CLI_KEYGEN_H_

#include "lab/host/arguments.h"

namespace psring {

// The exit code.
int Keygen(const Args& args);

}  // namespace psring

#endif  // PSRING_CLI_KEYGEN_H_
