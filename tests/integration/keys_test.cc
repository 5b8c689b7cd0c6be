// Jobs with a key, and everybody who has none or another one. Real processes.
#include "common/net/keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/clock.h"
#include "common/cluster/membership.h"
#include "common/net/address.h"
#include "common/net/key_file.h"
#include "protos/cluster.pb.h"
#include "tests/integration/hand_job.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/process.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Env = std::vector<std::pair<std::string, std::string>>;

// A refusal is said within 2 s; a program needs some to start, and a busy
// machine more. Who is not refused waits for a minute.
constexpr absl::Duration kSoonRefused = absl::Seconds(30);

// Not the user's own key.
Env With(const std::string& variable, const std::string& value) {
  return {{"XDG_CONFIG_HOME", "/nowhere"}, {variable, value}};
}

class KeysTest : public ::testing::Test {
 protected:
  KeysTest()
      : key_(MakeKey("key")),
        other_key_(MakeKey("other")),
        with_key_(With("PSRING_KEY_FILE", key_)),
        with_other_key_(With("PSRING_KEY_FILE", other_key_)),
        without_key_(With("PSRING_INSECURE", "1")) {}

  std::string MakeKey(const std::string& name) const {
    const std::string path = absl::StrCat(folder_, "/", name);
    EXPECT_EQ(WriteKeyFile(path, Secret::Random(), /*overwrite=*/false),
              absl::OkStatus());
    return path;
  }

  // A server and two workers that send messages.
  static std::unique_ptr<HandJob> MakeJob(const std::string& mode,
                                          const Env& env) {
    return std::make_unique<HandJob>(HandJobOptions{
        .mode = mode,
        .cluster_flags = {"--same-host=off"},
        .env = {{"ps 0", env}, {"worker 0", env}, {"worker 1", env}}});
  }

  // A worker that has `env` in place of the job's: it ends within seconds, with
  // a line that has `parts`, and the coordinator says `said`. The job is then
  // completed without it.
  static void ExpectRefused(HandJob& job, const Env& env,
                            const std::vector<std::string>& parts,
                            const std::string& said) {
    Process& host = job.Start(job.names().front());
    Flags argv = SmallTraining();
    argv.insert(argv.begin(), {WorkerBinary(),
                               absl::StrCat("--coordinator=", job.address())});
    const Ran ran = RunProcess(argv, Now() + kSoonRefused,
                               ProcessOptions{.cwd = "", .env = env});
    EXPECT_EQ(ran.code, 1) << ran.output;
    EXPECT_THAT(LastLine(ran.output), HasSubstr(job.address()));
    for (const std::string& part : parts) {
      EXPECT_THAT(LastLine(ran.output), HasSubstr(part));
    }
    EXPECT_TRUE(host.WaitForOutput(said, Soon())) << host.Output();
    job.Start("worker 0");
    job.Start("worker 1");
    job.ExpectAllEndWell();
  }

  const std::string folder_ = testing::TestDirectory();
  const std::string key_, other_key_;
  const Env with_key_, with_other_key_, without_key_;
};

TEST_F(KeysTest, AJobWithAKeyTrainsInBothModes) {
  for (const char* mode : {"ps", "ring"}) {
    auto job = MakeJob(mode, with_key_);
    job->StartAll();
    job->ExpectAllEndWell();
    EXPECT_THAT((*job)["worker 1"].Output(),
                HasSubstr(absl::StrCat("encrypted, with the key ", key_)));
  }
}

TEST_F(KeysTest, TheKeyOfAnotherJobIsRefused) {
  auto job = MakeJob("ps", with_key_);
  ExpectRefused(*job, with_other_key_,
                {"its key is not the job's", "psring keygen --print", "--page"},
                "refuses a process whose key is not this job's");
}

TEST_F(KeysTest, AJobThatIsNotCompleteTellsOfAnotherKey) {
  auto job = std::make_unique<HandJob>(HandJobOptions{
      .mode = "ring",
      .cluster_flags = {"--join-timeout=5"},
      .env = {{"worker 0", with_key_}, {"worker 1", with_other_key_}}});
  Process& first = job->Start("worker 0");
  EXPECT_EQ(job->Start("worker 1").Wait(Soon()), 1);
  EXPECT_EQ(first.Wait(Soon()), 1);
  EXPECT_THAT(LastLine(first.Output()),
              AllOf(HasSubstr("namely rank 1"),
                    HasSubstr("Connections were refused, the last one of a "
                              "process whose key is not this job's")));
}

TEST_F(KeysTest, NoKeyIsRefused) {
  auto job = MakeJob("ps", with_key_);
  ExpectRefused(
      *job, without_key_,
      {"asks for the job's key", "--key-file", "psring keygen", "--page"},
      "refuses a process that shows no key");
}

TEST_F(KeysTest, AKeyThatTheJobDoesNotHaveIsRefused) {
  auto job = MakeJob("ps", without_key_);
  ExpectRefused(*job, with_key_, {"key"}, "refuses a process that has a key");
}

// Without a key it would take a worker's place, and its failure end the job.
TEST_F(KeysTest, AStrangerThatJoinsFirstIsNotHeard) {
  auto job = MakeJob("ring", with_key_);
  job->Start("worker 0");
  HostilePeer stranger(absl::StrCat("tcp://", job->address()));
  proto::ControlMessage message;
  proto::Join& join = *message.mutable_join();
  join.set_protocol_version(kProtocolVersion);
  join.set_role(proto::WORKER);
  join.set_mode(proto::RING);
  join.set_wanted_rank(1);
  join.set_host("elsewhere");
  join.set_address("127.0.0.1");
  join.set_public_key(std::string(kKeyBytes, 'k'));
  join.set_failure("the stranger says that all is over");
  stranger.SendBlindly(message);
  job->Start("worker 1");
  job->ExpectAllEndWell();
  EXPECT_THAT((*job)["worker 0"].Output(), Not(HasSubstr("elsewhere")));
}

TEST_F(KeysTest, ToListenForOtherHostsTakesAKey) {
  // This host's, on the way to others.
  const auto own = ChooseAdvertised({.coordinator_host = "192.0.2.1"});
  if (!own.ok()) GTEST_SKIP() << own.status();
  const Flags argv = {WorkerBinary(), "--mode=ring", "--workers=1",
                      "--advertise=" + own->address, "--steps=1"};
  const Env none = {{"XDG_CONFIG_HOME", "/nowhere"}};
  const Ran ran =
      RunProcess(argv, Soon(), ProcessOptions{.cwd = "", .env = none});
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(LastLine(ran.output),
              AllOf(HasSubstr(own->address), HasSubstr("`psring keygen`"),
                    HasSubstr("--insecure (PSRING_INSECURE=1)")));
  const Ran insecure =
      RunProcess(argv, Soon(), ProcessOptions{.cwd = "", .env = without_key_});
  EXPECT_THAT(insecure.output, Not(HasSubstr("keygen")));
}

TEST_F(KeysTest, TheUsersKeyIsFoundWhereKeygenPutsIt) {
  const Env home = {{"XDG_CONFIG_HOME", folder_}};
  Ran ran = RunProcess({PsringBinary(), "keygen"}, Soon(),
                       ProcessOptions{.cwd = "", .env = home});
  ASSERT_EQ(ran.code, 0) << ran.output;
  const std::string path = absl::StrCat(folder_, "/psring/key");
  auto job = MakeJob("ring", home);
  job->StartAll();
  job->ExpectAllEndWell();
  EXPECT_THAT((*job)["worker 1"].Output(),
              HasSubstr(absl::StrCat("encrypted, with the key ", path)));
  ASSERT_EQ(chmod(path.c_str(), 0644), 0);
  ran = RunProcess({WorkerBinary(), "--mode=ring", "--workers=1"}, Soon(),
                   ProcessOptions{.cwd = "", .env = home});
  EXPECT_EQ(ran.code, 1);
  EXPECT_THAT(LastLine(ran.output),
              HasSubstr(absl::StrCat("chmod 600 ", path)));
}

// Whoever may list processes may read command lines, and root's friends
// environments: the key is in neither.
TEST_F(KeysTest, ALaunchersKeyIsInNoCommandLineAndNoEnvironment) {
  const std::string script =
      "tr '\\0' '\\n' < /proc/$$/environ; tr '\\0' ' ' < /proc/$$/cmdline;"
      "tr '\\0' ' ' < /proc/$PPID/cmdline; echo; echo 'E''N''D';"
      "cat /proc/$$/fd/$PSRING_KEY_FD";
  const Ran ran = RunProcess(
      {PsringBinary(), "run", "-n", "1", "--", "/bin/sh", "-c", script}, Soon(),
      ProcessOptions{.cwd = "", .env = {{"XDG_CONFIG_HOME", "/nowhere"}}});
  ASSERT_EQ(ran.code, 0) << ran.output;
  const std::vector<std::string> parts =
      absl::StrSplit(ran.output, absl::MaxSplits("END", 1));
  ASSERT_EQ(parts.size(), 2u) << ran.output;
  const size_t at = parts[1].find("psring-key-1:");
  ASSERT_NE(at, std::string::npos) << ran.output;
  const std::string key = parts[1].substr(at + 13, 64);
  EXPECT_THAT(parts[0], HasSubstr("PSRING_KEY_FD="));
  EXPECT_THAT(parts[0], Not(AnyOf(HasSubstr("psring-key-1"), HasSubstr(key))));
}

// As Python's subprocess closes what it does not know.
TEST_F(KeysTest, AKeyFileReachesWhatAWrapperStarts) {
  const Ran ran = RunProcess(
      {PsringBinary(), "run", "-n", "1", "--key-file=" + key_, "--", "/bin/sh",
       "-c", "echo \"file=$PSRING_KEY_FILE fd=$PSRING_KEY_FD.\""},
      Soon(),
      ProcessOptions{.cwd = "", .env = With("PSRING_KEY_FILE", other_key_)});
  EXPECT_EQ(ran.code, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr(absl::StrCat("file=", key_, " fd=.")));
}

TEST_F(KeysTest, WhatEncryptsNothingIsRefusedWhereEncryptionIsRequired) {
  const Ran ran = RunProcess({PsringBinary(), "run", "--mode=ddp",
                              "--require-encryption", "--", "/bin/true"},
                             Soon());
  EXPECT_EQ(ran.code, 2) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("torch.distributed encrypts nothing"));
}

TEST_F(KeysTest, LaunchGivesItsProcessesAKeyUnlessToldNotTo) {
  const auto launch = [&](const std::string& flag) {
    Flags argv = {PsringBinary(), "launch", "--ps-binary=" + PsBinary(),
                  "--worker-binary=" + WorkerBinary(), "--workers=2"};
    if (!flag.empty()) argv.push_back(flag);
    argv.push_back("--");
    const Flags training = SmallTraining();
    argv.insert(argv.end(), training.begin(), training.end());
    argv.push_back("--same-host=off");
    const Ran ran = RunProcess(
        argv, Soon(),
        ProcessOptions{.cwd = "", .env = {{"XDG_CONFIG_HOME", "/nowhere"}}});
    EXPECT_EQ(ran.code, 0) << ran.output;
    return ran.output;
  };
  EXPECT_THAT(launch(""), HasSubstr("all messages are encrypted, with the key "
                                    "of the command that started"));
  EXPECT_THAT(launch("--insecure"), Not(HasSubstr("encrypted")));
  EXPECT_THAT(launch("--key-file=" + key_),
              HasSubstr("encrypted, with the key " + key_));
}

}  // namespace
}  // namespace psring
