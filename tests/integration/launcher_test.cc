// The same command for every process, as torchrun, srun and mpirun start them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/integration/hand_job.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

using Environment = std::vector<std::pair<std::string, std::string>>;

Flags WorkerArgv(const std::string& mode, const Flags& more = {}) {
  Flags argv = {WorkerBinary(), "--mode=" + mode};
  if (mode == "ps") argv.push_back("--servers=1");
  for (const Flags& flags : {SmallTraining(), more}) {
    argv.insert(argv.end(), flags.begin(), flags.end());
  }
  return argv;
}

std::string FindTorchrun() {
  const char* path = std::getenv("PATH");
  std::vector<std::string> folders =
      absl::StrSplit(path == nullptr ? "" : path, ':');
  const auto tree = std::filesystem::canonical("WORKSPACE").parent_path();
  folders.insert(folders.begin(), tree / ".venv" / "bin");
  for (const std::string& folder : folders) {
    const std::string program = folder + "/torchrun";
    if (access(program.c_str(), X_OK) == 0) return program;
  }
  return "";
}

// Three processes: one server and two workers, or a ring of three.
class Launcher : public ::testing::TestWithParam<std::string> {
 protected:
  bool ps() const { return GetParam() == "ps"; }

  // Starts one process for each environment and lets them train.
  void ExpectTraining(const std::vector<Environment>& environments,
                      const std::string& source) {
    std::vector<Process> processes;
    for (const Environment& environment : environments) {
      auto process = Process::Start(WorkerArgv(GetParam()), {"", environment});
      ASSERT_TRUE(process.ok()) << process.status();
      processes.push_back(*std::move(process));
    }
    for (size_t rank = 0; rank < processes.size(); ++rank) {
      EXPECT_EQ(processes[rank].Wait(Soon()), 0) << processes[rank].Output();
      EXPECT_THAT(
          processes[rank].Output(),
          HasSubstr(absl::StrCat("by ", source, " (rank ", rank, " of 3)")));
    }
    EXPECT_THAT(processes[0].Output(),
                HasSubstr(ps() ? "ps 0 of 1, 2 workers" : "worker 0 of 3"));
    EXPECT_THAT(processes[ps() ? 1 : 0].Output(), HasSubstr("step 40/40"));
  }
};

TEST_P(Launcher, TorchrunTrains) {
  const std::string torchrun = FindTorchrun();
  if (torchrun.empty()) {
    GTEST_SKIP() << "no torchrun in the tree's .venv or in PATH";
  }
  Flags argv = {torchrun, "--standalone", "--nproc-per-node=3", "--no-python"};
  for (const std::string& arg : WorkerArgv(GetParam())) argv.push_back(arg);
  Ran ran = RunProcess(argv, Soon());
  // torchrun looks for a free port and lets go of it: somebody else may take it
  // before the coordinator does.
  for (int i = 0; i < 3 && absl::StrContains(ran.output, "in use"); ++i) {
    ran = RunProcess(argv, Soon());
  }
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("by torchrun (rank 0 of 3)"));
  EXPECT_THAT(ran.output, HasSubstr("step 40/40"));
}

TEST_P(Launcher, VariablesOfSrunTrain) {
  std::vector<Environment> environments;
  for (int rank = 0; rank < 3; ++rank) {
    environments.push_back({{"SLURM_PROCID", absl::StrCat(rank)},
                            {"SLURM_NTASKS", "3"},
                            {"SLURM_LOCALID", absl::StrCat(rank)},
                            {"SLURM_JOB_ID", absl::StrCat(getpid())},
                            {"SLURM_STEP_ID", ps() ? "0" : "1"},
                            {"SLURM_STEP_NODELIST", "localhost"}});
  }
  ExpectTraining(environments, "Slurm");
}

TEST_P(Launcher, VariablesOfMpirunTrain) {
  std::vector<Environment> environments;
  for (int rank = 0; rank < 3; ++rank) {
    environments.push_back(
        {{"OMPI_COMM_WORLD_RANK", absl::StrCat(rank)},
         {"OMPI_COMM_WORLD_SIZE", "3"},
         {"OMPI_COMM_WORLD_LOCAL_RANK", absl::StrCat(rank)},
         {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
         {"PMIX_NAMESPACE", absl::StrCat("test-", getpid(), GetParam())}});
  }
  ExpectTraining(environments, "Open MPI");
}

INSTANTIATE_TEST_SUITE_P(Modes, Launcher, ::testing::Values("ps", "ring"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace psring
