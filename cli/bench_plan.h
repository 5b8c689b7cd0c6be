// What `psring bench` is asked to do.
#ifndef PSRING_CLI_BENCH_PLAN_H_
#define PSRING_CLI_BENCH_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/flags.h"
#include "lab/bench/limits.h"

namespace psring {

// Flags as the user types them.
struct BenchFlags {
  std::vector<std::string> operations;
  std::string sizes = "1KB,10KB,100KB,1MB,10MB,100MB";
  std::string ranks = "2";
  int servers = 1;
  int64_t iterations = 20;
  int64_t warmup = 3;
  int rounds = 2;
  std::string optimizer = "sgd";
  std::string peers = "auto";
  int hosts = 0;
  std::string link = "1gbit";
  std::string placement = "colocated";
  std::string models = "mlp:784-2048-2048-10,lenet";
  std::string workers = "1,2";
  int64_t steps = 300;
  int repetitions = 3;
  double timeout_s = 1200;
  std::string out = ".";
  Binaries binaries;
};

// What they ask for.
struct BenchPlan {
  std::vector<int64_t> sizes;
  std::vector<int> ranks;
  std::vector<int> workers;
  std::vector<std::string> models;
  double link_bits_per_s = 0;
  Placement placement = Placement::kSeparate;
  int servers = 1;
  int server_hosts = 0;  // beside the workers' hosts
};

// Binds the fields of `flags`, which must outlive the parsing.
void AddBenchFlags(CLI::App& app, BenchFlags& flags);

// INVALID_ARGUMENT names the flag that is wrong or does not go with another;
// `app` has parsed.
absl::StatusOr<BenchPlan> PlanBench(const CLI::App& app,
                                    const BenchFlags& flags);

}  // namespace psring

#endif  // PSRING_CLI_BENCH_PLAN_H_
