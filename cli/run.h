// psring run: a user's own program as the workers of a job on this host.
#ifndef PSRING_CLI_RUN_H_
#define PSRING_CLI_RUN_H_

#include "cli/command.h"

namespace psring {

// Exit code: the first failing process's, else 0.
int RunScript(const Args& args);

}  // namespace psring

#endif  // PSRING_CLI_RUN_H_
