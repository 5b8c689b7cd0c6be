// The flags of `psring compare`, and what follows them.
#ifndef PSRING_CLI_COMPARE_FLAGS_H_
#define PSRING_CLI_COMPARE_FLAGS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "common/process/command_line.h"
#include "lab/host/arguments.h"

namespace psring {

// Flags as the user gives them.
struct CompareFlags {
  std::vector<std::vector<std::string>> axes;  // by the table's order
  std::string model = "lenet";
  std::string data = "digits";
  int epochs = 10;
  int64_t steps = 0;
  int batch_size = 64;
  double lr = 0.02;
  double momentum = 0.5;
  std::string optimizer = "momentum";
  int64_t seed = 0;
  std::string target = "auto";
  std::string target_loss;
  std::string metric, metric_loss;
  std::string out;
  std::string page, page_token_file;
  bool insecure = false;
  Binaries binaries;
};

// As a parser fills them; outlived by `flags`.
void AddCompareFlags(CommandLine& line, CompareFlags& flags);

inline constexpr char kOutFlag[] = "--out";

// The flags of a study that only the built-in trainer can follow.
inline constexpr const char* kTrainersFlags[] = {
    "--model", "--data",     "--epochs",    "--steps", "--batch-size",
    "--lr",    "--momentum", "--optimizer", "--slow",  "--link"};

// What follows `--` is a program, not flags.
bool IsScript(const Args& passed_on);

}  // namespace psring

#endif  // PSRING_CLI_COMPARE_FLAGS_H_
