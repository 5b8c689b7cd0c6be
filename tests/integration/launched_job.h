// Whole jobs of real processes, started by `psring launch`.
#ifndef PSRING_TESTS_INTEGRATION_LAUNCHED_JOB_H_
#define PSRING_TESTS_INTEGRATION_LAUNCHED_JOB_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/testing/process.h"

namespace psring {

// The test has //cli:psring, //ps and //worker in its data.
struct LaunchedJob {
  std::string mode = "ring";  // or "ps"
  int workers = 2;
  int servers = 1;                             // "ps" only
  std::vector<std::string> launch_flags = {};  // before `--`
  std::vector<std::string> worker_flags = {};  // after it
};

// Workers compute with one thread each, unless the flags say otherwise.
std::vector<std::string> LaunchArgv(const LaunchedJob& job);

// Runs it to its end, for which a test has minutes.
Ran RunLaunch(const LaunchedJob& job);

// The folder of one checkpoint.
std::string CheckpointAt(const std::string& checkpoint_dir, int64_t step);

// Compares the tensors' files of two checkpoints, byte for byte. Empty when
// they are equal, else which file differs and where.
std::string CheckpointDifference(const std::string& a, const std::string& b);

}  // namespace psring

#endif  // PSRING_TESTS_INTEGRATION_LAUNCHED_JOB_H_
