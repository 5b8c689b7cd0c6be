#include "common/cluster/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ClusterFlags Ps() {
  ClusterFlags flags;
  flags.is_ps_process = true;
  return flags;
}

ClusterFlags Ring() {
  ClusterFlags flags;
  flags.ring_mode = true;
  return flags;
}

ClusterFlags Set(ClusterFlags flags, const std::string& coordinator, int rank,
                 int servers, int workers) {
  flags.coordinator = coordinator;
  flags.rank = rank;
  flags.num_servers = servers;
  flags.num_workers = workers;
  return flags;
}

ClusterFlags Hosting(ClusterFlags flags) {
  flags.host_coordinator = true;
  return flags;
}

LaunchEnvironment Launched(int rank, int size) {
  LaunchEnvironment e;
  e.source = "Slurm";
  e.rank = rank;
  e.size = size;
  e.local_rank = rank;
  e.coordinator_host = "n1";
  e.coordinator_port = 20042;
  return e;
}

std::string ErrorOf(const absl::StatusOr<Placement>& p) {
  return p.ok() ? "placed: " + p->summary : std::string(p.status().message());
}

// "ps 0, S=2 W=3, hosts a:1", "worker -1, S=0 W=0, joins a:1".
std::string Placed(const ClusterFlags& flags,
                   const LaunchEnvironment& environment = {}) {
  const auto p = Place(flags, environment);
  if (!p.ok()) return ErrorOf(p);
  return absl::StrCat(p->role == proto::PS ? "ps " : "worker ", p->rank,
                      ", S=", p->num_servers, " W=", p->num_workers,
                      p->hosts_coordinator ? ", hosts " : ", joins ",
                      ToString(p->coordinator));
}

std::vector<std::string> WarningsOf(const ClusterFlags& flags,
                                    const LaunchEnvironment& environment = {}) {
  const auto p = Place(flags, environment);
  return p.ok() ? p->warnings : std::vector<std::string>{ErrorOf(p)};
}

TEST(PlaceUnderALauncher, TheFirstRanksAreServersInPsMode) {
  const ClusterFlags two = Set(ClusterFlags(), "", -1, 2, -1);
  EXPECT_EQ(Placed(two, Launched(0, 5)), "ps 0, S=2 W=3, hosts n1:20042");
  EXPECT_EQ(Placed(two, Launched(1, 5)), "ps 1, S=2 W=3, joins n1:20042");
  EXPECT_EQ(Placed(two, Launched(2, 5)), "worker 0, S=2 W=3, joins n1:20042");
  EXPECT_EQ(Placed(two, Launched(4, 5)), "worker 2, S=2 W=3, joins n1:20042");
  EXPECT_EQ(Placed(ClusterFlags(), Launched(1, 2)),
            "worker 0, S=1 W=1, joins n1:20042");
  EXPECT_EQ(Placed(Ps(), Launched(0, 2)), "ps 0, S=1 W=1, hosts n1:20042");
  EXPECT_EQ(Place(two, Launched(3, 5))->local_rank, 3);
}

TEST(PlaceUnderALauncher, EveryRankOfARingIsAWorker) {
  EXPECT_EQ(Placed(Ring(), Launched(0, 3)),
            "worker 0, S=0 W=3, hosts n1:20042");
  EXPECT_EQ(Placed(Ring(), Launched(2, 3)),
            "worker 2, S=0 W=3, joins n1:20042");
  EXPECT_EQ(Placed(Ring(), Launched(0, 1)),
            "worker 0, S=0 W=1, hosts n1:20042");
  EXPECT_THAT(WarningsOf(Ring(), Launched(2, 3)), IsEmpty());
}

TEST(PlaceUnderALauncher, TooFewProcessesAreAnErrorWithBothNumbers) {
  EXPECT_THAT(Placed(Set(Ps(), "", -1, 3, -1), Launched(0, 3)),
              HasSubstr("Slurm started 3 processes, and --servers=3 leaves "
                        "none for a worker"));
  EXPECT_THAT(
      Placed(ClusterFlags(), Launched(0, 1)),
      HasSubstr("Slurm started 1 processes, and --servers=1 (default)"));
}

TEST(PlaceUnderALauncher, APsProcessCannotBeAWorker) {
  EXPECT_THAT(Placed(Set(Ps(), "", -1, 2, -1), Launched(2, 4)),
              HasSubstr("--servers=2 makes rank 2 of 4 a worker: start it as "
                        "`psring worker`"));
}

TEST(PlaceUnderALauncher, FlagsWinAndContradictionsWarnWithBothValues) {
  const ClusterFlags address = Set(Ring(), "h:7000", -1, -1, -1);
  EXPECT_EQ(Placed(address, Launched(1, 3)), "worker 1, S=0 W=3, joins h:7000");
  EXPECT_THAT(
      WarningsOf(address, Launched(1, 3)),
      ElementsAre("--coordinator=h:7000 is used, though Slurm gives n1:20042"));
  EXPECT_THAT(WarningsOf(Set(Ring(), "n1:20042", -1, -1, 3), Launched(1, 3)),
              IsEmpty());

  const ClusterFlags workers = Set(ClusterFlags(), "", -1, 1, 4);
  EXPECT_EQ(Placed(workers, Launched(1, 4)),
            "worker 0, S=1 W=4, joins n1:20042");
  EXPECT_THAT(WarningsOf(workers, Launched(1, 4)),
              ElementsAre("--workers=4 is used, though Slurm started 4 "
                          "processes, of which 3 are workers"));
  EXPECT_THAT(Placed(Set(Ring(), "", -1, -1, 2), Launched(2, 3)),
              HasSubstr("worker 2 is one too many: ranks 0 to 1 belong to "
                        "--workers=2"));
}

TEST(PlaceUnderALauncher, OnlyRankZeroHostsTheCoordinator) {
  EXPECT_EQ(Placed(Hosting(Ring()), Launched(1, 3)),
            "worker 1, S=0 W=3, joins n1:20042");
  EXPECT_THAT(WarningsOf(Hosting(Ring()), Launched(1, 3)),
              ElementsAre(HasSubstr("--host-coordinator is ignored on rank 1 "
                                    "of 3 (Slurm): rank 0 hosts it")));
  EXPECT_THAT(WarningsOf(Hosting(Ring()), Launched(0, 3)), IsEmpty());
}

TEST(PlaceUnderALauncher, NobodyHostsWhatTheLauncherHosts) {
  LaunchEnvironment run = Launched(0, 2);
  run.hosts_coordinator = true;
  EXPECT_EQ(Placed(Ring(), run), "worker 0, S=0 W=2, joins n1:20042");
  EXPECT_THAT(ErrorOf(Place({}, run)), HasSubstr("`psring launch`"));
}

TEST(PlaceUnderALauncher, ARankFlagPlacesByHand) {
  const ClusterFlags same = Set(Ring(), "", 1, -1, -1);
  EXPECT_EQ(Placed(same, Launched(1, 3)), "worker 1, S=0 W=3, joins n1:20042");
  EXPECT_THAT(WarningsOf(same, Launched(1, 3)), IsEmpty());
  EXPECT_EQ(Place(same, Launched(1, 3))->local_rank, 1);

  const ClusterFlags other = Set(Ring(), "", 2, -1, -1);
  EXPECT_EQ(Placed(other, Launched(0, 3)), "worker 2, S=0 W=3, joins n1:20042");
  EXPECT_THAT(WarningsOf(other, Launched(0, 3)),
              ElementsAre("--rank=2 makes this process worker 2, though Slurm "
                          "makes it worker 0 (rank 0 of 3)"));
  EXPECT_EQ(Place(other, Launched(0, 3))->local_rank, -1);
}

TEST(PlaceUnderALauncher, AJobStartedWithinASingleTaskIsPlacedByItsFlags) {
  const ClusterFlags worker = Set(ClusterFlags(), "127.0.0.1:7000", -1, 1, 2);
  EXPECT_EQ(Placed(worker, Launched(0, 1)),
            "worker -1, S=1 W=2, joins 127.0.0.1:7000");
  EXPECT_THAT(WarningsOf(worker, Launched(0, 1)),
              Contains(HasSubstr("Slurm started this process alone: its flags, "
                                 "with --coordinator=127.0.0.1:7000")));
  EXPECT_EQ(Placed(Set(Ring(), "h:7000", 1, -1, 2), Launched(0, 1)),
            "worker 1, S=0 W=2, joins h:7000");
  // The same command line for any number of processes, one of them too.
  EXPECT_EQ(Placed(Set(Ring(), "h:7000", -1, -1, -1), Launched(0, 1)),
            "worker 0, S=0 W=1, hosts h:7000");
}

TEST(PlaceUnderALauncher, AnUnknownAddressDemandsTheFlag) {
  LaunchEnvironment e = Launched(1, 4);
  e.source = "Open MPI";
  e.coordinator_host.clear();
  EXPECT_THAT(Placed(Ring(), e),
              AllOf(HasSubstr("--coordinator=HOST:PORT is missing"),
                    HasSubstr("Open MPI tells no address"),
                    HasSubstr("the host of rank 0")));
  EXPECT_EQ(Placed(Set(Ring(), "h:7000", -1, -1, -1), e),
            "worker 1, S=0 W=4, joins h:7000");
  EXPECT_THAT(WarningsOf(Set(Ring(), "h:7000", -1, -1, -1), e), IsEmpty());
}

TEST(PlaceByHand, WhoJoinsKnowsWhatItWasTold) {
  EXPECT_EQ(Placed(Set(ClusterFlags(), "h:7000", -1, -1, -1)),
            "worker -1, S=0 W=0, joins h:7000");
  EXPECT_EQ(Placed(Set(Ps(), "h:7000", 1, 2, 4)),
            "ps 1, S=2 W=4, joins h:7000");
  EXPECT_EQ(Placed(Set(Ring(), "h:7000", 2, -1, 4)),
            "worker 2, S=0 W=4, joins h:7000");
  EXPECT_EQ(Placed(Set(ClusterFlags(), "h:7000", 0, -1, 1)),
            "worker 0, S=0 W=1, joins h:7000");
}

TEST(PlaceByHand, TheHostIsRankZeroOfItsRing) {
  EXPECT_EQ(Placed(Hosting(Set(Ring(), "h:7000", -1, -1, 4))),
            "worker 0, S=0 W=4, hosts h:7000");
  EXPECT_EQ(Placed(Set(Ring(), "h:7000", 0, -1, 4)),
            "worker 0, S=0 W=4, hosts h:7000");
  EXPECT_EQ(Placed(Hosting(Set(Ring(), "h:7000", 3, -1, 4))),
            "worker 3, S=0 W=4, hosts h:7000");
  EXPECT_EQ(Placed(Set(Ring(), "h:7000", -1, -1, 1)),
            "worker 0, S=0 W=1, hosts h:7000");
}

TEST(PlaceByHand, AHostingPsIsPsZeroUnlessToldOtherwise) {
  EXPECT_EQ(Placed(Hosting(Set(Ps(), "h:7000", -1, 2, 4))),
            "ps 0, S=2 W=4, hosts h:7000");
  EXPECT_EQ(Placed(Hosting(Set(Ps(), "h:0", 1, 2, 4))),
            "ps 1, S=2 W=4, hosts h:0");
  EXPECT_EQ(Placed(Hosting(Set(ClusterFlags(), "h:7000", -1, -1, 4))),
            "worker -1, S=1 W=4, hosts h:7000");
}

TEST(PlaceByHand, ARingOfOneNeedsNoAddress) {
  EXPECT_EQ(Placed(Set(Ring(), "", -1, -1, 1)),
            "worker 0, S=0 W=1, hosts 127.0.0.1:0");
  EXPECT_EQ(Placed(Set(Ring(), "", 0, -1, 1)),
            "worker 0, S=0 W=1, hosts 127.0.0.1:0");
}

TEST(PlaceByHand, NamesTheFlagThatIsMissingOrWrong) {
  const struct {
    ClusterFlags flags;
    std::string expected;
  } kRows[] = {
      {ClusterFlags(), "--coordinator=HOST:PORT is missing, e.g. --coord"},
      {Ring(), "--coordinator=HOST:PORT is missing, e.g. --coord"},
      {Hosting(Set(Ps(), "", -1, 1, 1)), "--coordinator=HOST:PORT is missing"},
      {Set(Ring(), "", 0, -1, 2), "--coordinator=HOST:PORT is missing"},
      {Set(Ring(), "h", -1, -1, -1), "--coordinator: 'h' is not HOST:PORT"},
      {Set(Ring(), "h:0", 1, -1, 2),
       "--coordinator=h:0: only the process that hosts"},
      {Hosting(Set(Ps(), "h:7000", -1, 2, -1)),
       "--workers=N is missing: this process hosts the coordinator "
       "(--host-coordinator)"},
      {Set(Ring(), "h:7000", 0, -1, -1),
       "--workers=N is missing: this process hosts the coordinator (--rank=0)"},
      {Set(Ring(), "h:7000", -2, -1, 2), "--rank=-2 is out of range"},
      {Set(Ring(), "h:7000", -1, -1, 0), "--workers=0 is out of range"},
      {Set(Ps(), "h:7000", -1, 0, 1), "--servers=0 is out of range"},
      {Set(Ring(), "h:7000", 2, -1, 2),
       "worker 2 is one too many: ranks 0 to 1 belong to --workers=2"},
      {Set(Ps(), "h:7000", 2, 2, 2),
       "ps 2 is one too many: ranks 0 to 1 belong to --servers=2"},
  };
  for (const auto& row : kRows) {
    EXPECT_THAT(Placed(row.flags), HasSubstr(row.expected));
  }
  ClusterFlags ps_in_ring = Ring();
  ps_in_ring.is_ps_process = true;
  EXPECT_THAT(Placed(ps_in_ring), HasSubstr("--mode=ring has no servers"));
}

TEST(Place, ServersOfARingAreIgnoredWithAWarning) {
  const ClusterFlags flags = Set(Ring(), "h:7000", -1, 2, -1);
  EXPECT_EQ(Placed(flags), "worker -1, S=0 W=0, joins h:7000");
  EXPECT_THAT(WarningsOf(flags),
              ElementsAre("--servers=2 is ignored: --mode=ring has none"));
}

TEST(Place, PassesTheEnvironmentsWarningsOn) {
  LaunchEnvironment e = Launched(0, 2);
  e.warnings = {"two launchers"};
  EXPECT_THAT(WarningsOf(Ring(), e), ElementsAre("two launchers"));
}

TEST(Place, SummarizesWhatWasUsedAndFromWhere) {
  EXPECT_EQ(Place(Set(ClusterFlags(), "", -1, 2, -1), Launched(3, 5))->summary,
            "worker 1 of 3, 2 servers, by Slurm (rank 3 of 5); joins the "
            "coordinator at n1:20042 (Slurm)");
  EXPECT_EQ(Place(Ring(), Launched(0, 5))->summary,
            "worker 0 of 5, by Slurm (rank 0 of 5); hosts the coordinator at "
            "n1:20042 (Slurm)");
  EXPECT_EQ(Place(Set(Ps(), "h:7000", -1, -1, -1), {})->summary,
            "ps ? of ?, ? workers, by flags; joins the coordinator at h:7000 "
            "(--coordinator)");
}

}  // namespace
}  // namespace psring
