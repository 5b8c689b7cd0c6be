// A job over a network, by the recipe for several hosts.
#include "tests/testing/two_hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/hand_job.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

class TwoHostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto hosts = TwoHosts::Create();
    if (!hosts.ok()) GTEST_SKIP() << hosts.status();
    hosts_ = std::make_unique<TwoHosts>(*std::move(hosts));
  }

  // The namespaces are this test's own, and so is every port in them.
  std::string Coordinator() const {
    return absl::StrCat("--coordinator=", TwoHosts::AddressOf(0), ":7000");
  }

  Process Start(int host, Flags argv) {
    argv.push_back(Coordinator());
    auto process = Process::Start(hosts_->On(host, argv));
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  }

  Flags Worker(const Flags& more = {}) const {
    Flags argv = SmallTraining();
    argv.insert(argv.begin(), WorkerBinary());
    argv.insert(argv.end(), more.begin(), more.end());
    return argv;
  }

  static void ExpectTrained(Process& process, const std::string& address) {
    EXPECT_EQ(process.Wait(Patience()), 0) << process.Output();
    EXPECT_THAT(process.Output(),
                HasSubstr(absl::StrCat("address ", address, " (the route to ",
                                       TwoHosts::AddressOf(0), ")")));
  }

  std::unique_ptr<TwoHosts> hosts_;
};

TEST_F(TwoHostsTest, TrainWithServersOnBoth) {
  std::vector<Process> first, second;
  first.push_back(Start(
      0, {PsBinary(), "--host-coordinator", "--servers=2", "--workers=2"}));
  second.push_back(Start(1, {PsBinary()}));
  first.push_back(Start(0, Worker()));
  second.push_back(Start(1, Worker()));
  for (Process& process : first) ExpectTrained(process, TwoHosts::AddressOf(0));
  for (Process& process : second) {
    ExpectTrained(process, TwoHosts::AddressOf(1));
  }
}

TEST_F(TwoHostsTest, TrainInARing) {
  Process first = Start(0, Worker({"--mode=ring", "--workers=2", "--rank=0"}));
  Process second = Start(1, Worker({"--mode=ring", "--workers=2"}));
  ExpectTrained(first, TwoHosts::AddressOf(0));
  ExpectTrained(second, TwoHosts::AddressOf(1));
}

TEST_F(TwoHostsTest, LoopbackAddressIsRefusedWithTheRemedy) {
  Process server = Start(0, {PsBinary(), "--host-coordinator", "--workers=1",
                             "--join-timeout=20"});
  ASSERT_TRUE(server.WaitForOutput("coordinator listens on", Patience()));
  Process worker = Start(1, Worker({"--advertise=127.0.0.1"}));
  EXPECT_EQ(worker.Wait(Patience()), 1) << worker.Output();
  EXPECT_THAT(
      LastLine(worker.Output()),
      HasSubstr("this process has a loopback address, but ps (host "));
  EXPECT_THAT(LastLine(worker.Output()),
              HasSubstr("Give it an address that other hosts reach: "
                        "--advertise or --interface"));
  server.Signal(SIGINT);
  EXPECT_EQ(server.Wait(Patience()), 128 + SIGINT) << server.Output();
}

}  // namespace
}  // namespace psring
