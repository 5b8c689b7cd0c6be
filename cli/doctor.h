// `psring doctor`: what was found on this host, and what to do about what was
// not.
#ifndef PSRING_CLI_DOCTOR_H_
#define PSRING_CLI_DOCTOR_H_

#include "lab/host/arguments.h"

namespace psring {

// The exit code: 1 when a needed thing is missing.
int Doctor(const Args& args);

}  // namespace psring

#endif  // PSRING_CLI_DOCTOR_H_
