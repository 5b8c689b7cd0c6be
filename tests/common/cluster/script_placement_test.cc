#include "common/cluster/script_placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

LaunchEnvironment Torchrun(int rank, int size) {
  LaunchEnvironment environment;
  environment.source = "torchrun";
  environment.rank = rank;
  environment.size = size;
  environment.local_rank = rank;
  environment.coordinator_host = "node7";
  environment.coordinator_port = 29501;
  return environment;
}

std::string ErrorOf(const ScriptWish& wish,
                    const LaunchEnvironment& environment) {
  return std::string(PlaceScript(wish, environment).status().message());
}

// `mpirun -n 4` means four workers, whatever the number of servers.
TEST(ScriptPlacement, EveryProcessOfALauncherIsAWorker) {
  for (int rank = 0; rank < 4; ++rank) {
    const auto p =
        PlaceScript({.ring_mode = false, .num_servers = 3}, Torchrun(rank, 4));
    ASSERT_TRUE(p.ok()) << p.status();
    EXPECT_EQ(p->role, proto::WORKER);
    EXPECT_EQ(p->rank, rank);
    EXPECT_EQ(p->num_workers, 4);
    EXPECT_EQ(p->num_servers, 3);
    EXPECT_EQ(p->hosts_coordinator, rank == 0);
    EXPECT_EQ(ToString(p->coordinator), "node7:29501");
  }
}

TEST(ScriptPlacement, WithoutALauncherItIsAJobOfOne) {
  const auto p = PlaceScript({}, {});
  ASSERT_TRUE(p.ok()) << p.status();
  EXPECT_EQ(p->rank, 0);
  EXPECT_EQ(p->num_workers, 1);
  EXPECT_EQ(p->num_servers, 0);
  EXPECT_TRUE(p->hosts_coordinator);
  EXPECT_EQ(p->coordinator.port, 0);
}

TEST(ScriptPlacement, ALauncherMayHostTheCoordinatorItself) {
  LaunchEnvironment environment = Torchrun(0, 2);
  environment.hosts_coordinator = true;
  const auto p = PlaceScript({}, environment);
  ASSERT_TRUE(p.ok()) << p.status();
  EXPECT_FALSE(p->hosts_coordinator);
}

TEST(ScriptPlacement, WhatTheScriptSaysWins) {
  const auto p = PlaceScript(
      {.rank = 1, .size = 3, .coordinator = "10.0.0.1:7000"}, Torchrun(0, 2));
  ASSERT_TRUE(p.ok()) << p.status();
  EXPECT_EQ(p->rank, 1);
  EXPECT_EQ(p->num_workers, 3);
  EXPECT_EQ(ToString(p->coordinator), "10.0.0.1:7000");
  EXPECT_THAT(p->warnings,
              ::testing::ElementsAre(HasSubstr("torchrun started 2")));
}

TEST(ScriptPlacement, NamesWhatIsMissingOrContradictory) {
  EXPECT_THAT(ErrorOf({.size = 2}, {}), HasSubstr("this process's rank"));
  EXPECT_THAT(ErrorOf({.rank = 1}, {}), HasSubstr("the size of the job"));
  EXPECT_THAT(ErrorOf({.rank = 2, .size = 2}, {}), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(ErrorOf({.rank = 1, .size = 2}, {}),
              HasSubstr("PSRING_COORDINATOR=HOST:PORT"));
  EXPECT_THAT(ErrorOf({.coordinator = "nowhere"}, {}),
              HasSubstr("coordinator"));
  EXPECT_THAT(ErrorOf({.ring_mode = false, .num_servers = 0}, {}),
              HasSubstr("servers=0"));
}

TEST(ScriptPlacement, SaysWhoGaveARankWithoutAnAddress) {
  LaunchEnvironment environment = Torchrun(1, 2);
  environment.coordinator_host.clear();
  EXPECT_THAT(ErrorOf({}, environment), HasSubstr("torchrun tells none"));
  environment.source = kByHand;
  EXPECT_THAT(
      ErrorOf({}, environment),
      HasSubstr("PSRING_RANK and PSRING_SIZE are set, but PSRING_COORDINATOR"));
}

// It would train by itself.
TEST(ScriptPlacement, HalfOfAPlaceIsAnError) {
  LaunchEnvironment environment;
  environment.half = "PSRING_SIZE=3 is set, but";
  EXPECT_THAT(ErrorOf({}, environment), HasSubstr("PSRING_SIZE=3 is set"));
  EXPECT_TRUE(
      PlaceScript({.rank = 1, .size = 2, .coordinator = "a:1"}, environment)
          .ok());
}

// "0 2; 1": the servers of each worker in turn.
std::string ServersOfAll(const ScriptWish& wish, int workers, int per_host) {
  std::vector<std::string> all;
  for (int rank = 0; rank < workers; ++rank) {
    LaunchEnvironment environment = Torchrun(rank, workers);
    environment.local_rank = rank % per_host;
    environment.node = rank / per_host;
    environment.num_nodes = (workers + per_host - 1) / per_host;
    const auto p = PlaceScript(wish, environment);
    if (!p.ok()) return std::string(p.status().message());
    all.push_back(absl::StrJoin(ServersOf(wish, environment, *p), " "));
  }
  return absl::StrJoin(all, "; ");
}

TEST(ScriptPlacement, ServersLiveInTheFirstWorkersOrInThoseOfEachHost) {
  EXPECT_EQ(ServersOfAll({}, 2, 2), "; ");
  EXPECT_EQ(ServersOfAll({.ring_mode = false, .num_servers = 2}, 4, 2),
            "0; 1; ; ");
  EXPECT_EQ(ServersOfAll({.ring_mode = false, .num_servers = 5}, 2, 2),
            "0 2 4; 1 3");
  EXPECT_EQ(ServersOfAll({.ring_mode = false, .servers_per_node = 1}, 4, 2),
            "0; ; 1; ");
  EXPECT_EQ(ServersOfAll({.ring_mode = false, .servers_per_node = 2}, 5, 2),
            "0 1; ; 2 3; ; 4 5");
  EXPECT_EQ(ServersOfAll({.ring_mode = false, .servers_per_node = 2}, 1, 1),
            "0 1");
}

TEST(ScriptPlacement, ServersOfEachHostNeedALauncherThatKnowsHosts) {
  EXPECT_THAT(
      ErrorOf({.ring_mode = false, .servers_per_node = 1}, Torchrun(0, 2)),
      HasSubstr("servers_per_node=1: torchrun does not tell"));
}

TEST(ScriptPlacement, AServerJoinsTheJobOfItsWorker) {
  const auto worker =
      PlaceScript({.ring_mode = false, .num_servers = 2}, Torchrun(1, 2));
  ASSERT_TRUE(worker.ok()) << worker.status();
  const Placement server = PlaceServer(*worker, 1, {"10.0.0.1", 7000});
  EXPECT_EQ(server.role, proto::PS);
  EXPECT_EQ(server.rank, 1);
  EXPECT_EQ(server.num_servers, 2);
  EXPECT_EQ(server.num_workers, 2);
  EXPECT_FALSE(server.hosts_coordinator);
  EXPECT_EQ(ToString(server.coordinator), "10.0.0.1:7000");
}

}  // namespace
}  // namespace psring
