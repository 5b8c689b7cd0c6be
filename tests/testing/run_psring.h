// Runs the program with a stand-in for the processes of a job.
#ifndef PSRING_TESTS_TESTING_RUN_PSRING_H_
#define PSRING_TESTS_TESTING_RUN_PSRING_H_

#include <string>
#include <vector>

#include "tests/testing/process.h"

namespace psring {

// The command line; the flags that name the stand-in come behind the
// subcommand.
std::vector<std::string> PsringArgv(const std::vector<std::string>& args);

Ran RunPsring(const std::vector<std::string>& args);

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_RUN_PSRING_H_
