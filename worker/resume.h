// Where a run that has stopped goes on: which checkpoint, and its state.
#ifndef PSRING_WORKER_RESUME_H_
#define PSRING_WORKER_RESUME_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/model/flat_model.h"
#include "common/optim/job_plan.h"
#include "protos/cluster.pb.h"
#include "worker/manifest.h"

namespace psring {

class Module;

struct ResumePoint {
  std::string checkpoint;  // its directory
  Progress progress;       // its step is the first that is still to be made
  // Newer ones, which do not verify, for who holds the directory's lock to move
  // aside.
  std::vector<std::string> damaged = {};
};

// The newest checkpoint in `directory` that verifies, if a run of `spec` can
// continue from it; its progress has a cursor, in the data of `spec`, and its
// number of updates. Newer
// ones that do not verify are logged as warnings. Blocks while it reads every
// file of it. Errors: NOT_FOUND where there is none; DATA_LOSS where none
// verifies, with the reason of each; FAILED_PRECONDITION names the flag, model
// or optimizer, that was another, or a format that is not known here. Other
// data and another seed are logged as a warning.
absl::StatusOr<ResumePoint> FindResumePoint(const std::string& directory,
                                            const proto::JobSpec& spec);

// What changes with the number of workers or the batch size, for the log; empty
// where neither has. `plan`: of the resumed run, with num_workers.
std::string SizeChange(const Progress& then, const proto::JobSpec& spec,
                       const JobPlan& plan, int num_workers);

// Reads what FindResumePoint has found: parameters into `flat`, the model's
// buffers into `model`. Returns the optimizer's state, one flat model a slot in
// the order of Optimizer::slot_names. Blocks. Errors are ReadStateFiles' and
// SetBuffers'; RESOURCE_EXHAUSTED without memory for the slots.
absl::StatusOr<std::vector<FlatBuffer>> LoadState(const std::string& checkpoint,
                                                  const proto::JobSpec& spec,
                                                  FlatModel& flat,
                                                  const Module& model);

}  // namespace psring

#endif  // PSRING_WORKER_RESUME_H_
