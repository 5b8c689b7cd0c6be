#include "lab/host/job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace psring {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

Job SmallJob(const std::string& mode) {
  Job job;
  job.mode = mode;
  job.servers = 2;
  job.workers = 3;
  job.threads_per_worker = 1;
  job.ps_binary = "/bin/ps";
  job.worker_binary = "/bin/worker";
  job.worker_flags = {"--model=lenet"};
  job.server_flags = {"--shard-threads=2"};
  return job;
}

std::vector<std::string> Names(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  return names;
}

TEST(Job, ServerZeroHostsTheCoordinatorOnAPortOfTheSystems) {
  const Command host = HostCommand(SmallJob("ps"), "/tmp/port");
  EXPECT_EQ(host.name, "ps 0");
  EXPECT_THAT(host.argv, ElementsAre("/bin/ps", "--coordinator=127.0.0.1:0",
                                     "--rank=0", "--workers=3", "--servers=2",
                                     "--shard-threads=2", "--host-coordinator",
                                     "--coordinator-port-file=/tmp/port"));
}

// They would end a job that its workers give more time.
TEST(Job, ServersHaveTheWorkersTimeouts) {
  Job job = SmallJob("ps");
  job.worker_flags = {"--join-timeout=600", "--step-timeout", "700",
                      "--progress-timeout=0"};
  job.server_flags = {"--progress-timeout=9"};
  EXPECT_THAT(
      HostCommand(job, "/tmp/port").argv,
      ElementsAre("/bin/ps", "--coordinator=127.0.0.1:0", "--rank=0",
                  "--workers=3", "--servers=2", "--join-timeout=600",
                  "--step-timeout", "700", "--progress-timeout=9",
                  "--host-coordinator", "--coordinator-port-file=/tmp/port"));
}

TEST(Job, WorkerZeroHostsARingsCoordinator) {
  const Command host = HostCommand(SmallJob("ring"), "/tmp/port");
  EXPECT_EQ(host.name, "worker 0");
  EXPECT_THAT(
      host.argv,
      ElementsAre("/bin/worker", "--mode=ring", "--coordinator=127.0.0.1:0",
                  "--rank=0", "--workers=3", "--threads=1", "--model=lenet",
                  "--host-coordinator", "--coordinator-port-file=/tmp/port"));
}

TEST(Job, TheOthersJoinAtThePort) {
  const auto ps = OtherCommands(SmallJob("ps"), 7000);
  EXPECT_THAT(Names(ps),
              ElementsAre("ps 1", "worker 0", "worker 1", "worker 2"));
  for (const Command& command : ps) {
    EXPECT_THAT(command.argv, Contains("--coordinator=127.0.0.1:7000"));
    EXPECT_THAT(command.argv, Not(Contains("--host-coordinator")));
  }
  EXPECT_THAT(Names(OtherCommands(SmallJob("ring"), 7000)),
              ElementsAre("worker 1", "worker 2"));
}

TEST(Job, EveryProcessWritesMetricsWhereAsked) {
  Job job = SmallJob("ps");
  EXPECT_THAT(HostCommand(job, "p").argv,
              Not(Contains(StartsWith("--metrics-dir"))));
  job.metrics_dir = "/m";
  EXPECT_THAT(HostCommand(job, "p").argv, Contains("--metrics-dir=/m"));
  for (const Command& command : OtherCommands(job, 1)) {
    EXPECT_THAT(command.argv, Contains("--metrics-dir=/m"));
  }
}

TEST(Job, AWorkersOwnThreadsFlagWins) {
  Job job = SmallJob("ring");
  job.worker_flags = {"--threads", "4"};
  EXPECT_THAT(HostCommand(job, "p").argv, Not(Contains("--threads=1")));
}

TEST(Job, FlagsThatTheLauncherGivesAreRefused) {
  EXPECT_TRUE(CheckFlags({"--model=lenet", "--workers-are-fine=1"}, {}).ok());
  for (const char* flag : {"--rank=1", "--mode", "--coordinator=h:1"}) {
    const absl::Status s = CheckFlags({"--epochs=1", flag}, {"--mode"});
    const std::string name = std::string(flag).substr(0, 6);
    EXPECT_EQ(s.code(), absl::StatusCode::kInvalidArgument) << flag;
    EXPECT_THAT(std::string(s.message()), HasSubstr(name));
    EXPECT_THAT(std::string(s.message()),
                HasSubstr(name == "--mode" ? "before `--`" : "leave it out"));
  }
}

TEST(StartJob, SaysWhichProcessOpensNoPort) {
  const Cancellation never;
  Supervisor supervisor(never, {});
  Job job = SmallJob("ps");
  job.ps_binary = "/bin/false";
  const absl::Status s = StartJob(job, supervisor).status();
  EXPECT_THAT(
      std::string(s.message()),
      AllOf(HasSubstr("ps 0 failed: exit code 1"), Not(HasSubstr("TMPDIR"))));
}

TEST(StartJob, NamesTheRemedyWhereThePortCannotBeWritten) {
  const Cancellation never;
  Supervisor supervisor(never, {});
  Job job = SmallJob("ps");
  job.server_prefixes = {
      {"/bin/sh", "-c",
       "echo '--coordinator-port-file: cannot write it'; false"},
      {}};
  const absl::Status s = StartJob(job, supervisor).status();
  EXPECT_THAT(std::string(s.message()),
              AllOf(HasSubstr("ps 0 failed"), HasSubstr("set TMPDIR")));
}

TEST(StartJob, EndsAtTheDeadline) {
  const Cancellation never;
  Supervisor supervisor(never, {});
  Job job = SmallJob("ps");
  job.ps_binary = "/bin/false";
  const absl::Status s =
      StartJob(job, supervisor, absl::ZeroDuration()).status();
  EXPECT_EQ(s.code(), absl::StatusCode::kDeadlineExceeded) << s;
  EXPECT_THAT(std::string(s.message()),
              HasSubstr("ps 0 has not opened the coordinator's port"));
}

}  // namespace
}  // namespace psring
