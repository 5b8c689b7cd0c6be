// What `psring bench` is asked to do.
#ifndef PSRING_CLI_BENCH_PLAN_H_
#define PSRING_CLI_BENCH_PLAN_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "lab/bench/bench_run.h"

namespace psring {

// Flags as the user types them; those that need no parsing are `options`' own.
struct BenchFlags {
  BenchOptions options;
  std::string sizes = "1KB,10KB,100KB,1MB,10MB,100MB";
  std::string ranks = "2";
  std::string peers = "auto";
  std::string link = "1gbit";
  std::string placement = "colocated";
  std::string models = "mlp:784-2048-2048-10,lenet";
  std::string modes = "ring,ps-bsp,ddp";
  std::string precisions = "fp32";
  std::string workers = "1,2";
  std::string device = "auto";
  double timeout_s = 1200;
  bool insecure = false;
  std::string out = ".";
};

// Binds the fields of `flags`, which must outlive the parsing.
void AddBenchFlags(CommandLine& line, BenchFlags& flags);

// What the parsed flags ask for. INVALID_ARGUMENT names the flag that is wrong
// or does not go with another.
absl::StatusOr<BenchOptions> PlanBench(const CommandLine& line,
                                       const BenchFlags& flags);

}  // namespace psring

#endif  // PSRING_CLI_BENCH_PLAN_H_
