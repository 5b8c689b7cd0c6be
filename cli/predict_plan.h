// What `psring predict` is asked to do.
#ifndef PSRING_CLI_PREDICT_PLAN_H_
#define PSRING_CLI_PREDICT_PLAN_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "common/model/layout.h"
#include "lab/bench/prediction_check.h"
#include "lab/predict/predict_run.h"

namespace psring {

// Flags as the user types them; an empty text was not given. Those that need no
// parsing are `options`' and `check_options`' own.
struct PredictFlags {
  PredictOptions options;
  std::string hosts = "8,64,512";
  std::string link = "10gbit";
  std::string latency = "30us";
  std::string servers = "auto";
  std::string measure = "5s";
  double bucket_mb = kDefaultBucketBytes >> 20;
  std::string compute;
  std::string update;  // bytes a second
  std::string message = "5us";
  std::string json;
  std::string out = ".";
  // With --check.
  bool check = false;
  PredictionCheckOptions check_options;
  std::string links = "100mbit,1gbit,2gbit";
  std::string sizes = "2.5MB,10MB,25MB";
  Binaries binaries;
};

struct PredictPlan {
  PredictOptions options;
  PredictionCheckOptions check;  // with --check
};

// Binds the fields of `flags`, which must outlive the parsing.
void AddPredictFlags(CommandLine& line, PredictFlags& flags);

// What the parsed flags ask for. INVALID_ARGUMENT names the flag that is wrong
// or does not go with another.
absl::StatusOr<PredictPlan> PlanPredict(const CommandLine& line,
                                        const PredictFlags& flags);

}  // namespace psring

#endif  // PSRING_CLI_PREDICT_PLAN_H_
