// Ports and folders that cannot be had, processes that never come: found before
// training starts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/net/address.h"
#include "common/net/socket.h"
#include "tests/integration/hand_job.h"
#include "tests/testing/deaf_port.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A port of this test's, held while it lives.
class HeldPort {
 public:
  HeldPort() : socket_(*Socket::Bind(context_, "127.0.0.1", 0)) {}
  std::string address() const {
    return socket_->endpoint().substr(sizeof("tcp://") - 1);
  }

 private:
  Context context_;
  std::unique_ptr<Socket> socket_;
};

TEST(BusyPort, IsNamedWithTheRemedy) {
  const HeldPort held;
  const Flags host = {"--host-coordinator", "--workers=1",
                      "--coordinator=" + held.address()};
  Flags ps = {PsBinary()}, worker = {WorkerBinary(), "--mode=ring", "--rank=0",
                                     "--data=digits:train=8,test=8"};
  for (Flags* argv : {&ps, &worker}) {
    argv->insert(argv->end(), host.begin(), host.end());
    const Ran ran = RunProcess(*argv, Soon());
    EXPECT_EQ(ran.code, 1) << ran.output;
    EXPECT_THAT(LastLine(ran.output),
                AllOf(HasSubstr(held.address()), HasSubstr("already in use"),
                      HasSubstr("choose another port")));
  }
}

// Nobody answers there, though somebody listens: ZeroMQ's, or nobody at all.
TEST(NoCoordinator, IsFoundByTheDeadlineAndItsAddressNamed) {
  const DeafPort nobody;
  const HeldPort silent;
  const std::pair<std::string, std::string> kPlaces[] = {
      {nobody.address(), "nothing listens there"},
      {silent.address(), "something listens there that speaks ZeroMQ"}};
  for (const auto& [address, why] : kPlaces) {
    const Time start = Now();
    const Ran ran = RunProcess(
        {PsBinary(), "--join-timeout=1", "--coordinator=" + address}, Soon());
    EXPECT_EQ(ran.code, 1) << ran.output;
    EXPECT_THAT(
        LastLine(ran.output),
        AllOf(HasSubstr("no coordinator has answered"), HasSubstr(address),
              HasSubstr("within 1s: " + why), HasSubstr("--host-coordinator")));
    EXPECT_GE(Now() - start, absl::Seconds(1));
  }
}

TEST(MissingProcess, IsNamedToAllWhoCame) {
  HandJob job(
      {.servers = 2, .workers = 3, .cluster_flags = {"--join-timeout=6"}});
  job.Start("ps 0");
  job.Start("ps 1");
  const std::string host = absl::StrCat("(host ", HostName(), ", pid ");
  job.ExpectOthersFail(
      "", {"the job is not complete after 6 s: missing 3 of 3 worker processes",
           "joined: ps 0 " + host, "ps 1 " + host, "Start the missing ones"});
}

TEST(MissingProcess, IsNamedWithItsRank) {
  HandJob job(
      {.mode = "ring", .workers = 3, .cluster_flags = {"--join-timeout=10"}});
  job.Start("worker 0");
  job.Start("worker 2");
  job.ExpectOthersFail("", {"missing 1 of 3 worker processes, namely rank 1;",
                            "Start the missing ones"});
}

class UnwritableFolder : public ::testing::Test {
 protected:
  UnwritableFolder() { testing::WriteFile(file_, "not a folder"); }

  const std::string file_ = testing::TestDirectory() + "/file";
};

TEST_F(UnwritableFolder, ForTheReportIsFoundBeforeTraining) {
  const Ran ran = RunProcess(
      {PsringBinary(), "compare", "--out=" + file_ + "/report"}, Soon());
  EXPECT_EQ(ran.code, 1) << ran.output;
  EXPECT_THAT(LastLine(ran.output),
              AllOf(HasSubstr(file_ + "/report"), HasSubstr("cannot write"),
                    HasSubstr("--out")));
  EXPECT_THAT(ran.output, Not(HasSubstr("epoch")));
}

// Nothing is left where it would have been.
TEST_F(UnwritableFolder, ForThePortIsNamedWithTheReason) {
  const std::string folder = testing::TestDirectory();
  const std::string taken = folder + "/taken";
  std::filesystem::create_directory(taken);
  for (const auto& [path, reason] :
       {std::pair(folder + "/none/port", "No such file or directory"),
        std::pair(taken, "Is a directory")}) {
    const Ran ran = RunProcess(
        {PsBinary(), "--host-coordinator", "--coordinator=127.0.0.1:0",
         "--workers=1", "--coordinator-port-file=" + path},
        Soon());
    EXPECT_EQ(ran.code, 1) << ran.output;
    EXPECT_THAT(LastLine(ran.output),
                HasSubstr(absl::StrCat("--coordinator-port-file: cannot write ",
                                       path, ": ", reason)));
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

TEST_F(UnwritableFolder, ForCheckpointsIsFoundBeforeTrainingAndEndsAll) {
  for (const std::string mode : {"ps", "ring"}) {
    Flags flags = EndlessTraining();
    flags.push_back(absl::StrCat("--checkpoint-dir=", file_, "/below"));
    HandJob job({.mode = mode, .worker_flags = flags});
    job.StartAll();
    job.ExpectOthersFail("", {absl::StrCat(file_, "/below")});
    for (const std::string& name : job.names()) {
      EXPECT_THAT(job[name].Output(), Not(HasSubstr(" trains "))) << name;
    }
  }
}

}  // namespace
}  // namespace psring
