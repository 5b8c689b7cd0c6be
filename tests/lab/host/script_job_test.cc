#include "lab/host/script_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_join.h"
#include "common/net/cancellation.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;

std::string ErrorOf(const ScriptJob& job) {
  return std::string(CheckScriptJob(job).message());
}

// What its workers print, who end well.
std::vector<std::string> LinesOf(const ScriptJob& job) {
  std::vector<std::string> lines;
  SupervisorOptions options;
  options.on_line = [&](const std::string& name, absl::string_view line) {
    lines.push_back(std::string(line));
  };
  Cancellation cancellation;
  Supervisor supervisor(cancellation, options);
  const auto running = RunningScript::Start(job, supervisor);
  EXPECT_TRUE(running.ok()) << running.status();
  supervisor.Wait();
  EXPECT_FALSE(supervisor.first_failure().has_value());
  return lines;
}

TEST(ScriptJob, GivesEachWorkerItsPlaceAndTheSettings) {
  ScriptJob job;
  job.mode = "ps";
  job.servers = 3;
  job.workers = 2;
  job.size = 6;
  job.first_rank = 4;
  job.threads_per_worker = 5;
  job.extra["PSRING_SYNC"] = "async";
  job.command = {"python3", "train.py", "--lr=0.1"};
  const Command command = WorkerCommand(job, "10.0.0.1:7000", 1);
  EXPECT_EQ(command.name, "worker 5");
  for (const char* variable :
       {"PSRING_RANK=5", "PSRING_SIZE=6", "PSRING_LOCAL_RANK=1",
        "PSRING_LOCAL_SIZE=2", "PSRING_COORDINATOR=10.0.0.1:7000",
        "PSRING_MODE=ps", "PSRING_SERVERS=3", "PSRING_SYNC=async",
        "OMP_NUM_THREADS=5"}) {
    EXPECT_THAT(command.argv, Contains(variable));
  }
  EXPECT_THAT(absl::StrJoin(command.argv, " "),
              ::testing::EndsWith(" python3 train.py --lr=0.1"));
}

TEST(ScriptJob, SaysAWorkersPlaceAsTorchrunWhereThatIsWanted) {
  ScriptJob job;
  job.workers = 2;
  job.size = 6;
  job.first_rank = 4;
  job.command = {"true"};
  EXPECT_THAT(WorkerCommand(job, "10.0.0.1:7000", 1).argv,
              testing::Not(Contains("RANK=5")));
  job.torchrun_variables = true;
  for (const char* variable : {"RANK=5", "WORLD_SIZE=6", "LOCAL_RANK=1",
                               "LOCAL_WORLD_SIZE=2", "MASTER_ADDR=10.0.0.1"}) {
    EXPECT_THAT(WorkerCommand(job, "10.0.0.1:7000", 1).argv,
                Contains(variable));
  }
}

TEST(ScriptJob, NamesWhatContradictsItself) {
  ScriptJob job;
  EXPECT_THAT(ErrorOf(job), HasSubstr("no program"));
  job.command = {"true"};
  EXPECT_EQ(ErrorOf(job), "");
  job.size = 2;
  job.first_rank = 1;
  EXPECT_THAT(ErrorOf(job), HasSubstr("--size=2"));
  job.size = 4;
  EXPECT_THAT(ErrorOf(job), HasSubstr("--coordinator=HOST:PORT is missing"));
  job.coordinator = "10.0.0.1:7000";
  EXPECT_EQ(ErrorOf(job), "");
}

TEST(ScriptJob, ItsCoordinatorHasAnAddressThatOthersReach) {
  ScriptJob job;
  job.command = {"/bin/true"};
  job.coordinator = "0.0.0.0:7000";
  EXPECT_THAT(ErrorOf(job), HasSubstr("0.0.0.0 is no address"));
}

TEST(ScriptJob, ItsCoordinatorListensWhereTheUserSays) {
  ScriptJob job;
  job.extra["PSRING_ADVERTISE"] = "127.0.0.3";
  EXPECT_EQ(AddressOf(job)->address, "127.0.0.1");  // all are on this host
  job.coordinator = "localhost:7000";
  EXPECT_EQ(AddressOf(job)->address, "127.0.0.3");
  job.extra["PSRING_ADVERTISE"] = "";
  job.extra["PSRING_INTERFACE"] = "lo";
  EXPECT_EQ(AddressOf(job)->reason, "the address of lo");
}

TEST(ScriptJob, ACoordinatorOfAnotherHostAsksForTheFirstRank) {
  ScriptJob job;
  job.command = {"/bin/true"};
  job.size = 4;
  job.coordinator = "203.0.113.7:7000";  // nobody's
  job.extra["PSRING_ADVERTISE"] = "127.0.0.1";
  job.security.insecure = true;
  Cancellation cancellation;
  Supervisor supervisor(cancellation, {});
  const auto running = RunningScript::Start(job, supervisor);
  EXPECT_THAT(std::string(running.status().message()),
              AllOf(HasSubstr("must be one of this host's"),
                    HasSubstr("give this one --first-rank=K")));
}

TEST(ScriptJob, AScriptThatCannotRunByItselfNeedsItsInterpreter) {
  const std::string script = testing::TempDir() + "/train.py";
  std::ofstream(script) << "print()\n";
  ScriptJob job;
  job.command = {script};
  EXPECT_THAT(ErrorOf(job), HasSubstr("`-- python3 " + script + "`"));
  std::filesystem::permissions(script, std::filesystem::perms::owner_all);
  EXPECT_EQ(ErrorOf(job), "");
}

// Real processes, which print what they are told.
TEST(ScriptJob, RunsEveryWorkerUnderOneCoordinator) {
  ScriptJob job;
  job.workers = 3;
  job.command = {"/bin/sh", "-c",
                 "echo $PSRING_RANK of $PSRING_SIZE $PSRING_COORDINATOR"};
  const std::vector<std::string> lines = LinesOf(job);
  ASSERT_EQ(lines.size(), 3u);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_THAT(lines,
                Contains(HasSubstr(std::to_string(rank) + " of 3 127.0.0.1:")));
  }
}

// Which env, by itself, takes for a variable.
TEST(ScriptJob, RunsAProgramInAFolderWithAnEqualsSign) {
  const std::string folder = testing::TempDir() + "/run=3";
  std::filesystem::create_directory(folder);
  const std::string program = folder + "/program";
  std::ofstream(program) << "#!/bin/sh\necho \"$1,$2\"\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  ScriptJob job;
  job.workers = 1;
  job.command = {program, "a b", "--lr=0.1"};
  EXPECT_THAT(LinesOf(job), ::testing::ElementsAre("a b,--lr=0.1"));
}

}  // namespace
}  // namespace psring
