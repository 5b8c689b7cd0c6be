// What `psring predict` is asked to do.
#ifndef PSRING_CLI_PREDICT_PLAN_H_
#define PSRING_CLI_PREDICT_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/flags.h"
#include "common/model/layout.h"
#include "lab/predict/scenario.h"

namespace psring {

// Flags as the user types them; an empty text was not given.
struct PredictFlags {
  std::string hosts = "8,64,512";
  std::string link = "10gbit";
  std::string latency = "30us";
  std::string servers = "auto";
  std::string from;
  std::string model = "lenet";
  int batch_size = 64;
  int threads = 0;
  std::string measure = "5s";
  int64_t parameters = 0;
  double bucket_mb = kDefaultBucketBytes >> 20;
  std::string compute;
  double forward_share = 1.0 / 3;
  std::string update;  // bytes a second
  std::string message = "5us";
  int shard_threads = 4;
  int steps = 20;
  uint64_t seed = 0;
  std::string json;
  std::string out = ".";
  // Of --check.
  bool check = false;
  std::string links = "100mbit,1gbit,2gbit";
  std::string sizes = "2.5MB,10MB,25MB";
  int64_t iterations = 6;
  Binaries binaries;
};

struct PredictPlan {
  std::vector<int> hosts;
  std::vector<int> servers;  // empty: auto
  // What the flags say of it; link and file are put in later.
  Hardware hardware;
  bool link_given = false;
  std::optional<double> update_bytes_per_s;
  double measure_s = 5;
  std::vector<double> compute_s;  // empty: from the file, or measured
  Effort effort;
  std::vector<double> links;   // of --check, in bits a second
  std::vector<int64_t> sizes;  // of --check
};

// Binds the fields of `flags`, which must outlive the parsing.
void AddPredictFlags(CLI::App& app, PredictFlags& flags);

// INVALID_ARGUMENT names the flag that is wrong or does not go with another;
// `app` has parsed.
absl::StatusOr<PredictPlan> PlanPredict(const CLI::App& app,
                                        const PredictFlags& flags);

}  // namespace psring

#endif  // PSRING_CLI_PREDICT_PLAN_H_
