// What `psring run` is asked to do.
#ifndef PSRING_CLI_RUN_PLAN_H_
#define PSRING_CLI_RUN_PLAN_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "cli/supervised.h"
#include "common/cluster/security.h"
#include "lab/host/script_job.h"

namespace psring {

// Flags as the user types them; those that need no parsing are `job`'s own.
struct RunFlags {
  ScriptJob job;
  int servers_per_node = 0;
  SupervisedFlags supervised;
  // What scripts read from their environment; empty: not set.
  std::string sync, update, compress, metrics_dir, tensorboard, state_dir;
  std::string interface, advertise, ports;
  SecurityWish security = {};
};

// Binds the fields of `flags`, which must outlive the parsing.
void AddRunFlags(CommandLine& line, RunFlags& flags);

struct RunPlan {
  ScriptJob job;  // its key has yet to be found
  // A launcher has started this command: this process becomes a worker.
  // Otherwise this command starts the workers.
  bool becomes_worker = false;
};

// What the parsed flags and the environment ask for. INVALID_ARGUMENT names the
// flag that is wrong or does not go with another.
absl::StatusOr<RunPlan> PlanRun(const CommandLine& line, RunFlags flags);

}  // namespace psring

#endif  // PSRING_CLI_RUN_PLAN_H_
