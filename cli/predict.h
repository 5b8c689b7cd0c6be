// psring predict: what a step would take on hosts that are not there.
#ifndef PSRING_CLI_PREDICT_H_
#define PSRING_CLI_PREDICT_H_

#include "lab/host/arguments.h"

namespace psring {

// Returns the exit code.
int RunPredict(const Args& args);

}  // namespace psring

#endif  // PSRING_CLI_PREDICT_H_
