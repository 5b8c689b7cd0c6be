// A job over a network, by the recipe for several hosts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/net/key_file.h"
#include "common/net/keys.h"
#include "lab/host/hosts.h"
#include "tests/integration/hand_job.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

class TwoHostsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto hosts = Hosts::Create(2, 1e9);
    if (!hosts.ok()) GTEST_SKIP() << hosts.status();
    hosts_ = *std::move(hosts);
    ASSERT_EQ(WriteKeyFile(key_, Secret::Random(), /*overwrite=*/true),
              absl::OkStatus());
  }

  // The namespaces are this test's own, and so is every port in them.
  std::string Coordinator() const {
    return absl::StrCat("--coordinator=", Hosts::AddressOf(0), ":7000");
  }

  Process Start(int host, Flags argv) {
    argv.push_back(Coordinator());
    return Run(host, argv);
  }

  Process Run(int host, const Flags& argv) {
    Flags prefixed = hosts_->PrefixOf(host);
    prefixed.insert(prefixed.end(), argv.begin(), argv.end());
    auto process = Process::Start(
        prefixed,
        ProcessOptions{.cwd = "", .env = {{"PSRING_KEY_FILE", key_}}});
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
    EXPECT_EQ(process.Wait(Soon()), 0) << process.Output();
    EXPECT_THAT(process.Output(),
                HasSubstr(absl::StrCat("address ", address, " (the route to ",
                                       Hosts::AddressOf(0), ")")));
  }

  // A home that both hosts share.
  const std::string key_ = testing::TestDirectory("-key") + "/key";
  std::unique_ptr<Hosts> hosts_;
};

TEST_F(TwoHostsTest, TrainWithServersOnBoth) {
  std::vector<Process> first, second;
  first.push_back(Start(
      0, {PsBinary(), "--host-coordinator", "--servers=2", "--workers=2"}));
  second.push_back(Start(1, {PsBinary()}));
  first.push_back(Start(0, Worker()));
  second.push_back(Start(1, Worker()));
  for (Process& process : first) ExpectTrained(process, Hosts::AddressOf(0));
  for (Process& process : second) {
    ExpectTrained(process, Hosts::AddressOf(1));
  }
}

TEST_F(TwoHostsTest, TrainInARing) {
  Process first = Start(0, Worker({"--mode=ring", "--workers=2", "--rank=0"}));
  Process second = Start(1, Worker({"--mode=ring", "--workers=2"}));
  ExpectTrained(first, Hosts::AddressOf(0));
  ExpectTrained(second, Hosts::AddressOf(1));
}

TEST_F(TwoHostsTest, TrainWhereHostsHaveIpv6Alone) {
  const auto address = [](int host) {
    return absl::StrCat("fd00:6::", 1 + host);
  };
  for (int host : {0, 1}) {
    Process change =
        Run(host, {"sh", "-c",
                   absl::StrCat("ip -4 address flush dev eth0 && ip address "
                                "add ",
                                address(host), "/64 dev eth0 nodad")});
    ASSERT_EQ(change.Wait(Soon()), 0) << change.Output();
  }
  const auto start = [&](int host, Flags argv) {
    argv.push_back(absl::StrCat("--coordinator=[", address(0), "]:7000"));
    argv.push_back("--interface=eth0");
    return Run(host, argv);
  };
  std::vector<Process> job;
  job.push_back(start(0, {PsBinary(), "--host-coordinator", "--workers=2"}));
  job.push_back(start(0, Worker()));
  job.push_back(start(1, Worker()));
  for (Process& process : job) {
    EXPECT_EQ(process.Wait(Soon()), 0) << process.Output();
    EXPECT_THAT(process.Output(), HasSubstr("(the address of eth0)"));
  }
}

// For longer than the default allows. Host 1 learns it from the coordinator.
TEST_F(TwoHostsTest, AnOutageWithinTheHeartbeatTimeoutChangesNothing) {
  constexpr int kSteps = 2000;
  const std::string expected = UndisturbedCheckpoint(kSteps);
  const Flags patient = {"--heartbeat-timeout=60", "--workers=2", "--rank=0"};
  for (const std::string mode : {"ring", "ps"}) {
    const std::string folder = testing::TestDirectory("-" + mode);
    Flags worker = SmallTraining(kSteps, folder);
    worker.insert(worker.begin(), {WorkerBinary(), "--mode=" + mode});
    Flags first = worker;
    std::vector<Process> job;
    if (mode == "ps") {
      job.push_back(Start(0, {PsBinary(), "--host-coordinator", "--workers=2",
                              "--heartbeat-timeout=60"}));
      first.push_back("--rank=0");
    } else {
      first.insert(first.end(), patient.begin(), patient.end());
    }
    job.push_back(Start(0, first));
    job.push_back(Start(1, worker));
    Process& zero = job[job.size() - 2];
    ASSERT_TRUE(zero.WaitForOutput("epoch 1 step", Soon())) << zero.Output();
    Process outage = Run(1, {"sh", "-c",
                             "ip link set eth0 down && sleep 9 && "
                             "ip link set eth0 up"});
    EXPECT_EQ(outage.Wait(Soon()), 0) << outage.Output();
    for (Process& process : job) {
      EXPECT_EQ(process.Wait(Soon()), 0) << process.Output();
    }
    EXPECT_EQ(CheckpointDifference(expected, CheckpointAt(folder, kSteps)), "")
        << mode;
  }
}

// The command, with this file as /etc/hosts.
Flags WithHosts(const std::string& file, const Flags& command) {
  Flags argv = {
      "unshare", "--mount", "sh", "-c",
      absl::StrCat("mount --bind ", file, " /etc/hosts && exec \"$0\" \"$@\"")};
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

// The other host knows just one of them, or prefers it.
TEST_F(TwoHostsTest, TheCoordinatorIsFoundAtEachAddressOfItsName) {
  const std::string second_address = "10.99.7.1";
  Process more =
      Run(0, {"ip", "address", "add", second_address + "/32", "dev", "eth0"});
  ASSERT_EQ(more.Wait(Soon()), 0) << more.Output();
  Process route = Run(1, {"ip", "route", "add", second_address, "dev", "eth0"});
  ASSERT_EQ(route.Wait(Soon()), 0) << route.Output();
  const std::string directory = testing::TestDirectory();
  std::vector<Process> job;
  for (const int host : {0, 1}) {
    const std::string hosts = absl::StrCat(directory, "/both", host);
    std::ofstream table(hosts);
    if (host == 0) table << Hosts::AddressOf(0) << " both.test\n";
    table << second_address << " both.test\n";
    table.close();
    const Flags worker =
        Worker({"--mode=ring", "--workers=2", absl::StrCat("--rank=", host),
                "--join-timeout=60", "--coordinator=both.test:7000"});
    job.push_back(Run(host, WithHosts(hosts, worker)));
  }
  for (Process& process : job) {
    EXPECT_EQ(process.Wait(Soon()), 0) << process.Output();
  }
}

// As Debian does it for the host's own name, at that host.
TEST_F(TwoHostsTest, TheCoordinatorsNameMayBeLoopbackOnItsHost) {
  const std::string hosts = testing::TestDirectory() + "/hosts";
  std::ofstream(hosts) << "127.0.0.1 localhost\n127.0.1.1 first.test\n";
  const auto on_first = [&](const Flags& command) {
    return Run(0, WithHosts(hosts, command));
  };
  const auto start_first = [&](const Flags& more) {
    Flags worker = Worker({"--mode=ring", "--workers=3", "--join-timeout=60",
                           "--coordinator=first.test:7000"});
    worker.insert(worker.end(), more.begin(), more.end());
    return on_first(worker);
  };
  const std::string address = absl::StrCat("--advertise=", Hosts::AddressOf(0));
  for (const Flags& chosen : {Flags{address}, Flags{}}) {
    Flags zero = chosen, one = chosen;
    zero.push_back("--rank=0");
    one.push_back("--rank=1");
    Process first = start_first(zero);
    Process beside = start_first(one);
    Process second = Start(1, Worker({"--mode=ring", "--workers=3"}));
    EXPECT_EQ(first.Wait(Soon()), 0) << first.Output();
    EXPECT_EQ(beside.Wait(Soon()), 0) << beside.Output();
    ExpectTrained(second, Hosts::AddressOf(1));
  }

  const auto with_run = [&](int first_rank, const std::string& coordinator) {
    Flags argv = {PsringBinary(),
                  "run",
                  "-n1",
                  "--size=2",
                  absl::StrCat("--first-rank=", first_rank),
                  absl::StrCat("--coordinator=", coordinator, ":7001"),
                  "--"};
    const Flags worker = Worker({"--mode=ring"});
    argv.insert(argv.end(), worker.begin(), worker.end());
    return argv;
  };
  Process first = on_first(with_run(0, "first.test"));
  Process second = Run(1, with_run(1, Hosts::AddressOf(0)));
  EXPECT_EQ(first.Wait(Soon()), 0) << first.Output();
  EXPECT_EQ(second.Wait(Soon()), 0) << second.Output();

  // Where there are several networks, the user says over which.
  Process another = Run(0, {"sh", "-c",
                            "ip link add net2 type veth && ip address add "
                            "10.99.0.1/24 dev net2 && ip link set net2 up"});
  ASSERT_EQ(another.Wait(Soon()), 0) << another.Output();
  for (const std::string& flag : {std::string("--interface=eth0"), address}) {
    Flags argv = with_run(0, "first.test");
    argv.insert(argv.begin() + 2, flag);
    argv.push_back(flag);
    Process zero = on_first(argv);
    Process one = Run(1, with_run(1, Hosts::AddressOf(0)));
    EXPECT_EQ(zero.Wait(Soon()), 0) << zero.Output();
    EXPECT_EQ(one.Wait(Soon()), 0) << one.Output();
  }

  // Without a key, strangers could reach it otherwise.
  Process warns = start_first({"--rank=0", "--insecure"});
  EXPECT_TRUE(warns.WaitForOutput(
      "the coordinator's host, first.test, is a loopback address", Soon()))
      << warns.Output();
  kill(-warns.pid(), SIGINT);
  EXPECT_EQ(warns.Wait(Soon()), 128 + SIGINT) << warns.Output();
}

// Two workers and a server on each host: some of the payload crosses the link,
// some lies in shared memory. The bits are those of a job on one host whose
// processes send messages, and of one whose processes share memory.
TEST_F(TwoHostsTest, EveryPlacementGivesTheSameBits) {
  const std::string folder = testing::TestDirectory();
  const Flags training = {"--model=lenet",    "--data=digits:train=512,test=8",
                          "--batch-size=8",   "--steps=30",
                          "--bucket-mb=0.05", "--momentum=0.9"};
  const auto on_one_host = [&](const std::string& name, const std::string& mode,
                               const std::string& same_host) {
    LaunchedJob job{.mode = mode, .workers = 4, .servers = 2};
    job.launch_flags = {"--server-flag=--same-host=" + same_host};
    job.worker_flags = training;
    job.worker_flags.push_back("--same-host=" + same_host);
    job.worker_flags.push_back(
        absl::StrCat("--checkpoint-dir=", folder, "/", name));
    if (mode == "ring") job.launch_flags.clear();
    const Ran ran = RunLaunch(job);
    EXPECT_EQ(ran.code, 0) << ran.output;
    return CheckpointAt(absl::StrCat(folder, "/", name), 30);
  };
  const std::string reference = on_one_host("messages", "ring", "off");
  const auto on_two_hosts = [&](const std::string& name,
                                const std::string& mode) {
    std::vector<Process> processes;
    if (mode == "ps") {
      processes.push_back(
          Start(0, {PsBinary(), "--host-coordinator", "--servers=2",
                    "--workers=4", "--shard-threads=1"}));
      processes.push_back(Start(1, {PsBinary(), "--shard-threads=1"}));
    }
    for (int rank = 0; rank < 4; ++rank) {
      Flags argv = {WorkerBinary(), "--mode=" + mode,
                    absl::StrCat("--rank=", rank), "--threads=1",
                    absl::StrCat("--checkpoint-dir=", folder, "/", name)};
      if (mode == "ring") argv.push_back("--workers=4");
      argv.insert(argv.end(), training.begin(), training.end());
      processes.push_back(Start(rank / 2, argv));
    }
    bool shared = false;
    for (Process& process : processes) {
      EXPECT_EQ(process.Wait(Soon()), 0) << process.Output();
      shared |= process.Output().find(mode == "ring"
                                          ? "ring of 2 nodes; 2 ranks share"
                                          : "1 of 2 shards share") !=
                std::string::npos;
    }
    EXPECT_TRUE(shared) << mode << ": no memory was shared";
    return CheckpointAt(absl::StrCat(folder, "/", name), 30);
  };
  EXPECT_EQ(CheckpointDifference(reference, on_one_host("a", "ring", "auto")),
            "");
  EXPECT_EQ(CheckpointDifference(reference, on_one_host("b", "ps", "off")), "");
  EXPECT_EQ(CheckpointDifference(reference, on_one_host("c", "ps", "auto")),
            "");
  EXPECT_EQ(CheckpointDifference(reference, on_two_hosts("d", "ring")), "");
  EXPECT_EQ(CheckpointDifference(reference, on_two_hosts("e", "ps")), "");
}

TEST_F(TwoHostsTest, LoopbackAddressIsRefusedWithTheRemedy) {
  Process server = Start(0, {PsBinary(), "--host-coordinator", "--workers=1",
                             "--join-timeout=60"});
  ASSERT_TRUE(server.WaitForOutput("coordinator listens on", Soon()));
  Process worker = Start(1, Worker({"--advertise=127.0.0.1"}));
  EXPECT_EQ(worker.Wait(Soon()), 1) << worker.Output();
  EXPECT_THAT(LastLine(worker.Output()),
              HasSubstr("this process has a loopback address, but ps (host "));
  EXPECT_THAT(LastLine(worker.Output()),
              HasSubstr("Give it an address that other hosts reach "
                        "(advertise or interface)"));
  kill(-server.pid(), SIGINT);  // to the group: the server is nsenter's child
  EXPECT_EQ(server.Wait(Soon()), 128 + SIGINT) << server.Output();
}

}  // namespace
}  // namespace psring
