// The JSON that psring_open_model takes.
#ifndef PSRING_PYTHON_CAPI_SCRIPT_MODEL_OPTIONS_H_
#define PSRING_PYTHON_CAPI_SCRIPT_MODEL_OPTIONS_H_

#include <string>

#include "absl/status/statusor.h"
#include "protos/cluster.pb.h"
#include "python/capi/script_gpu.h"

namespace psring {

// What psring_open_model was told.
struct ScriptModelOptions {
  proto::JobSpec spec;
  GpuWish gpu;
};

// What psring_policies() says.
std::string PoliciesAsJson();

// INVALID_ARGUMENT names the key and what it takes.
absl::StatusOr<ScriptModelOptions> ParseModelOptions(const std::string& text,
                                                     proto::Mode mode);

}  // namespace psring

#endif  // PSRING_PYTHON_CAPI_SCRIPT_MODEL_OPTIONS_H_
