#include "common/model/policies.h"

#include <string>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

// The flags that the user chose the job's consistency with.
std::string ModeOf(const proto::JobSpec& spec) {
  if (spec.mode() == proto::RING) return "--mode=ring";
  return spec.sync() == proto::BSP   ? "--sync=bsp"
         : spec.sync() == proto::SSP ? "--sync=ssp"
                                     : "--sync=async";
}

absl::Status CheckBackupWorkers(const proto::JobSpec& spec, int num_workers) {
  const int backup = spec.backup_workers();
  if (backup == 0) return absl::OkStatus();
  if (spec.mode() == proto::RING || spec.sync() != proto::BSP) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--backup-workers is for --mode=ps --sync=bsp, not for ", ModeOf(spec),
        spec.mode() == proto::RING ? ": a ring needs every worker's gradient"
                                   : ", which waits for no step to close"));
  }
  if (backup < 0 || (num_workers > 0 && backup >= num_workers)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--backup-workers=", backup, " of ", num_workers,
        " workers: a step closes at the first workers - backup workers "
        "gradients, so it must be from 0 to ",
        num_workers - 1));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckPolicies(const proto::JobSpec& spec, int num_workers) {
  return CheckBackupWorkers(spec, num_workers);
}

}  // namespace psring
