#include "tests/integration/hand_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/clock.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

bool IsServer(const std::string& name) { return name.rfind("ps", 0) == 0; }

std::string RankOf(const std::string& name) {
  return name.substr(name.find(' ') + 1);
}

std::string HostOf(const std::string& coordinator) {
  return coordinator.substr(0, coordinator.rfind(':'));
}

// Nothing until the file is there, which appears as a whole.
int ReadPort(const std::string& path) {
  std::ifstream file(path);
  int port = 0;
  file >> port;
  return port;
}

}  // namespace

Flags SmallTraining() {
  return {"--model=mlp:784-16-10", "--data=digits:train=256,test=64",
          "--batch-size=8", "--threads=1", "--steps=40"};
}

Flags EndlessTraining() {
  Flags flags = SmallTraining();
  flags.back() = "--steps=1000000000";
  return flags;
}

Flags SmallTraining(int steps, const std::string& checkpoint_dir) {
  Flags flags = SmallTraining();
  flags.back() = absl::StrCat("--steps=", steps);
  flags.push_back(absl::StrCat("--checkpoint-dir=", checkpoint_dir));
  return flags;
}

HandJob::HandJob(HandJobOptions options) : options_(std::move(options)) {
  static int jobs = 0;
  port_file_ =
      absl::StrCat(::testing::TempDir(), "/port-", getpid(), "-", ++jobs);
  const int servers = options_.mode == "ps" ? options_.servers : 0;
  for (int i = 0; i < servers; ++i) names_.push_back(absl::StrCat("ps ", i));
  for (int i = 0; i < options_.workers; ++i) {
    names_.push_back(absl::StrCat("worker ", i));
  }
}

std::vector<pid_t> HandJob::pids() const {
  std::vector<pid_t> pids;
  for (const auto& [name, process] : processes_) pids.push_back(process.pid());
  return pids;
}

std::string HandJob::address() const {
  return port_ == 0 ? options_.coordinator
                    : absl::StrCat(HostOf(options_.coordinator), ":", port_);
}

Flags HandJob::Argv(const std::string& name, const Flags& worker_flags) const {
  const bool server = IsServer(name);
  Flags argv = {server ? PsBinary() : WorkerBinary(),
                absl::StrCat("--coordinator=", address()),
                absl::StrCat("--rank=", RankOf(name))};
  if (name == names_.front()) {
    argv.insert(argv.end(),
                {"--host-coordinator",
                 absl::StrCat("--coordinator-port-file=", port_file_),
                 absl::StrCat("--workers=", options_.workers)});
    if (server) argv.push_back(absl::StrCat("--servers=", options_.servers));
  }
  if (!server) {
    argv.push_back(absl::StrCat("--mode=", options_.mode));
    argv.insert(argv.end(), worker_flags.begin(), worker_flags.end());
  }
  argv.insert(argv.end(), options_.cluster_flags.begin(),
              options_.cluster_flags.end());
  return argv;
}

Process& HandJob::Start(const std::string& name, const Flags& worker_flags) {
  ProcessOptions process_options;
  if (const auto env = options_.env.find(name); env != options_.env.end()) {
    process_options.env = env->second;
  }
  auto process = Process::Start(Argv(name, worker_flags), process_options);
  EXPECT_TRUE(process.ok()) << process.status();
  if (!process.ok()) std::abort();
  processes_.erase(name);
  Process& started =
      processes_.emplace(name, *std::move(process)).first->second;
  if (name == names_.front()) {
    EXPECT_TRUE(started.WaitForOutput("coordinator listens on", Soon()))
        << started.Output();
    while ((port_ = ReadPort(port_file_)) == 0 &&
           started.Wait(Now() + absl::Milliseconds(5)) == -1) {
    }
  }
  return started;
}

void HandJob::StartAll() {
  for (const std::string& name : names_) Start(name);
}

void HandJob::TrainFor(absl::Duration time) {
  Process& worker = (*this)["worker 0"];
  ASSERT_TRUE(worker.WaitForOutput("epoch 1 step", Soon())) << worker.Output();
  EXPECT_EQ(worker.Wait(Now() + time), -1) << worker.Output();
}

void HandJob::ExpectAllEndWell() {
  for (auto& [name, process] : processes_) {
    EXPECT_EQ(process.Wait(Soon()), 0) << name << ":\n" << process.Output();
  }
}

void HandJob::ExpectOthersFail(const std::string& culprit, const Flags& parts,
                               Time deadline) {
  for (auto& [name, process] : processes_) {
    if (name == culprit) continue;
    EXPECT_EQ(process.Wait(deadline), 1) << name << ":\n" << process.Output();
    for (const std::string& part : parts) {
      EXPECT_THAT(LastLine(process.Output()), HasSubstr(part)) << name;
    }
  }
}

std::string UndisturbedCheckpoint(int steps) {
  const std::string dir = testing::TestDirectory("-undisturbed");
  HandJob job({.mode = "ring",
               .worker_flags = SmallTraining(steps, dir),
               .cluster_flags = kMessages});
  job.StartAll();
  job.ExpectAllEndWell();
  return CheckpointAt(dir, steps);
}

std::string LastLine(const std::string& output) {
  const std::vector<std::string> lines =
      absl::StrSplit(absl::StripSuffix(output, "\n"), '\n');
  return lines.back();
}

}  // namespace psring
