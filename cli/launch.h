// `psring launch`: a whole job as processes of this host.
#ifndef PSRING_CLI_LAUNCH_H_
#define PSRING_CLI_LAUNCH_H_

#include "lab/host/arguments.h"

namespace psring {

// The exit code: that of the process which failed first, 128 + the signal when
// interrupted, or 0.
int Launch(const Args& args);

}  // namespace psring

#endif  // PSRING_CLI_LAUNCH_H_
