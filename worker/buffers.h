// A module's buffers (batch norm's running statistics) as bytes.
#ifndef PSRING_WORKER_BUFFERS_H_
#define PSRING_WORKER_BUFFERS_H_

#include <vector>

#include "absl/status/status.h"
#include "common/state/state_files.h"
#include "worker/models/module.h"

namespace psring {

// In the module's order, for a checkpoint or for other workers.
std::vector<ExtraTensor> BuffersOf(const Module& module);

// Errors name the buffer that is missing, or of another shape or type.
absl::Status SetBuffers(const Module& module,
                        const std::vector<ExtraTensor>& values);

}  // namespace psring

#endif  // PSRING_WORKER_BUFFERS_H_
