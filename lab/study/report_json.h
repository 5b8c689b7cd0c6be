// A study as JSON, the report's machine-readable form:
//
//   {"schema": "psring-report-2",
//    "setup": {"command", "flags": {FLAG: TEXT}, "threads_per_worker",
//              "created", "commit", "libtorch", "zeromq"},
//    "machine": {"cpu", "cores", "memory_bytes", "system"},
//    "axes": {AXIS: [VALUE, ...]}       what was varied; an axis is a row of
//                                       study_axes.cc, a value is a text
//    "questions", "verdicts", "faults": [TEXT, ...],
//    "target_accuracy": 0.948,          that times count to; "target_loss" of a
//                                       study that is judged by its losses
//    "identical_weights": true, false or null (nothing to compare),
//    "variants": [{"label", "point": {AXIS: VALUE}, "seeds": [VALUE, ...],
//                  "reached": so many seeds reached the target,
//                  "images_per_second", "test_accuracy", "test_loss",
//                  "seconds_to_target", "steps_to_target": SPREAD or null,
//                  "formula": {"worker_bytes_per_step",
//                              "server_bytes_per_step"} or null,
//                  "prediction": {"step_seconds", "measured_step_seconds",
//                                 "error": -0.02} or null}],
//    "runs": [RUN, ...]}
//
//   SPREAD is {"mean", "min", "max"} over the seeds. A RUN, which also is what
//   a study's folder keeps in a file of its own:
//
//   {"point": {AXIS: VALUE}, "num_parameters", "num_steps" (of each worker),
//    "seconds" (of training, without evaluations), "wall_seconds",
//    "other_cores" (see lab/host/other_load.h), "images_per_second",
//    "test_accuracy", "test_loss" (after the last epoch),
//    "worker_bytes_sent_per_step", "server_bytes_sent_per_step",
//    "worker_peak_bytes", "server_peak_bytes"  (of the process with most),
//    "worker_peak_gpu_bytes"  (the same; 0: none on a GPU that tells),
//    "staleness_mean", "staleness_max",
//    "staleness_histogram": {RANK: [updates that missed 0, 1, ..., more]},
//    "step_seconds": {RANK: {"compute", "exposed", "wait",
//                            "busy": [of all steps' compute and wait, ascending
//                                     means of equally many steps each]}},
//    "predicted_step_seconds": what psring predict makes of its computing; null
//                              where it does not know this way of training
//    "weights_crc32": 8 hexadecimal digits or null,
//    "steps": [{"step", "seconds", "loss", "images_per_second"}],   worker 0's
//    "epochs": [{"epoch", "step", "seconds", "train_loss", "test_loss",
//                "test_accuracy", "images_per_second"}]}
//
// In a point, "none" is an axis that is off and "-" one that does not matter. A
// number that was not finite is null.
#ifndef PSRING_LAB_STUDY_REPORT_JSON_H_
#define PSRING_LAB_STUDY_REPORT_JSON_H_

#include <nlohmann/json_fwd.hpp>

#include "lab/study/comparison.h"
#include "lab/study/study_setup.h"

namespace psring {

nlohmann::json ToJson(const StudySetup& setup, const Comparison& comparison);

}  // namespace psring

#endif  // PSRING_LAB_STUDY_REPORT_JSON_H_
