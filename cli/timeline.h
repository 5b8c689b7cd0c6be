// `psring timeline`: what to do with the files of --timeline.
#ifndef PSRING_CLI_TIMELINE_H_
#define PSRING_CLI_TIMELINE_H_

#include "lab/host/arguments.h"

namespace psring {

// The exit code.
int RunTimeline(const Args& args);

}  // namespace psring

#endif  // PSRING_CLI_TIMELINE_H_
