#include "common/cluster/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// As `torchrun --nproc-per-node=2` sets them.
Variables Torchrun() {
  return {{"RANK", "3"},
          {"GROUP_RANK", "1"},
          {"ROLE_RANK", "3"},
          {"ROLE_NAME", "default"},
          {"LOCAL_RANK", "1"},
          {"LOCAL_WORLD_SIZE", "2"},
          {"WORLD_SIZE", "4"},
          {"GROUP_WORLD_SIZE", "2"},
          {"ROLE_WORLD_SIZE", "4"},
          {"MASTER_ADDR", "node7"},
          {"MASTER_PORT", "29500"},
          {"TORCHELASTIC_RESTART_COUNT", "0"},
          {"TORCHELASTIC_MAX_RESTARTS", "0"},
          {"TORCHELASTIC_RUN_ID", "none"},
          {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
}

// As `srun -N 2 -n 4` sets them within a job of four hosts.
Variables Slurm() {
  return {{"SLURM_JOB_ID", "200505"},
          {"SLURM_JOBID", "200505"},
          {"SLURM_STEP_ID", "0"},
          {"SLURM_STEPID", "0"},
          {"SLURM_PROCID", "2"},
          {"SLURM_LOCALID", "0"},
          {"SLURM_NODEID", "1"},
          {"SLURM_NTASKS", "4"},
          {"SLURM_NPROCS", "4"},
          {"SLURM_NNODES", "2"},
          {"SLURM_STEP_NUM_TASKS", "4"},
          {"SLURM_STEP_NODELIST", "gnode[20,25]"},
          {"SLURM_JOB_NODELIST", "gnode[10,20,25,37]"},
          {"SLURM_NODELIST", "gnode[10,20,25,37]"},
          {"SLURMD_NODENAME", "gnode25"}};
}

// As `mpirun -n 3` (4.1) sets them on one host.
Variables OpenMpi() {
  return {{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "3"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"},
          {"OMPI_COMM_WORLD_NODE_RANK", "1"},
          {"OMPI_UNIVERSE_SIZE", "8"},
          {"OMPI_MCA_ess_base_jobid", "2735013889"},
          {"OMPI_MCA_orte_ess_jobid", "2735013889"},
          {"PMIX_NAMESPACE", "2735013889"},
          {"PMIX_RANK", "1"}};
}

// `base` with some variables set, or with "" unset.
Variables With(Variables base, const Variables& changes) {
  for (const auto& [name, value] : changes) {
    base[name] = value;
    if (value.empty()) base.erase(name);
  }
  return base;
}

Variables Both(Variables base, const Variables& other) {
  base.insert(other.begin(), other.end());
  return base;
}

// "Slurm: 2 of 4, local 0, gnode20:20505"
std::string Detected(const Variables& variables) {
  const auto e = DetectEnvironment(variables);
  if (!e.ok()) return std::string(e.status().message());
  if (e->source.empty()) return "by hand";
  return absl::StrCat(e->source, ": ", e->rank, " of ", e->size, ", local ",
                      e->local_rank, ", ", e->coordinator_host, ":",
                      e->coordinator_port);
}

std::vector<std::string> WarningsOf(const Variables& variables) {
  const auto e = DetectEnvironment(variables);
  return e.ok() ? e->warnings : std::vector<std::string>{"failed"};
}

TEST(DetectEnvironment, FindsWhatEachLauncherTells) {
  const struct {
    Variables variables;
    std::string expected;
  } kRows[] = {
      {{}, "by hand"},
      {{{"HOME", "/root"}, {"RANK", ""}}, "by hand"},
      {Torchrun(), "torchrun: 3 of 4, local 1, node7:29501"},
      {With(Torchrun(), {{"TORCHELASTIC_USE_AGENT_STORE", "False"}}),
       "torchrun: 3 of 4, local 1, node7:29500"},
      {With(Torchrun(), {{"MASTER_PORT", "65535"}}),
       "torchrun: 3 of 4, local 1, node7:65534"},
      {With(Torchrun(), {{"MASTER_ADDR", ""}, {"LOCAL_RANK", ""}}),
       "torchrun: 3 of 4, local -1, :0"},
      {Slurm(), "Slurm: 2 of 4, local 0, gnode20:20505"},
      {With(Slurm(), {{"SLURM_STEP_NODELIST", ""}}),
       "Slurm: 2 of 4, local 0, gnode10:20505"},
      {With(Slurm(), {{"SLURM_STEP_ID", ""}}),
       "Slurm: 2 of 4, local 0, gnode20:20505"},
      {With(Slurm(), {{"SLURM_STEP_NODELIST", "n[001-999999999]"}}),
       "Slurm: 2 of 4, local 0, n001:20505"},
      {With(Slurm(), {{"SLURM_JOB_ID", ""}}), "Slurm: 2 of 4, local 0, :0"},
      {OpenMpi(), "Open MPI: 1 of 3, local 1, 127.0.0.1:24269"},
      {With(OpenMpi(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
       "Open MPI: 1 of 3, local 1, :0"},
      {With(OpenMpi(), {{"PMIX_NAMESPACE", ""},
                        {"OMPI_MCA_ess_base_jobid", ""},
                        {"OMPI_MCA_orte_ess_jobid", ""}}),
       "Open MPI: 1 of 3, local 1, :0"},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(Detected(row.variables), row.expected);
    EXPECT_THAT(WarningsOf(row.variables), IsEmpty()) << row.expected;
  }
}

TEST(DetectEnvironment, AJobsShellIsNoLaunchedTask) {
  for (const char* step : {"", "4294967290", "4294967291"}) {
    EXPECT_EQ(Detected(With(Slurm(),
                            {{"SLURM_STEP_ID", step}, {"SLURM_STEPID", step}})),
              "by hand");
  }
}

TEST(DetectEnvironment, StepsAndJobsDifferInTheirPorts) {
  auto port = [](const Variables& variables) {
    return DetectEnvironment(variables)->coordinator_port;
  };
  const int first = port(Slurm());
  const int next_step = port(With(Slurm(), {{"SLURM_STEP_ID", "1"}}));
  EXPECT_NE(next_step, first);
  EXPECT_NE(next_step, port(With(Slurm(), {{"SLURM_JOB_ID", "200506"}})));
  const int last = port(With(Slurm(), {{"SLURM_JOB_ID", "4294967295"},
                                       {"SLURM_STEP_ID", "4294967289"}}));
  EXPECT_GE(last, 20000);
  EXPECT_LT(last, 40000);
  const int other =
      port(With(OpenMpi(), {{"PMIX_NAMESPACE", "prterun-a-1@1"}}));
  EXPECT_NE(other, port(OpenMpi()));
  EXPECT_GE(other, 20000);
  EXPECT_LT(other, 40000);
}

TEST(DetectEnvironment, PrefersTorchrunThenOpenMpiThenSlurm) {
  const Variables all = Both(Both(Torchrun(), OpenMpi()), Slurm());
  EXPECT_EQ(Detected(all), "torchrun: 3 of 4, local 1, node7:29501");
  EXPECT_THAT(WarningsOf(all),
              ElementsAre("torchrun gives rank 3 of 4, Open MPI gives rank 1 "
                          "of 3: torchrun is used",
                          "torchrun gives rank 3 of 4, Slurm gives rank 2 of "
                          "4: torchrun is used"));
  EXPECT_THAT(Detected(Both(OpenMpi(), Slurm())), HasSubstr("Open MPI: 1"));
  EXPECT_THAT(WarningsOf(Both(With(Torchrun(), {{"RANK", "2"}}), Slurm())),
              IsEmpty());
}

TEST(DetectEnvironment, WarnsOfARankWithoutASize) {
  const Variables variables = With(Slurm(), {{"WORLD_SIZE", "8"}});
  EXPECT_THAT(Detected(variables), HasSubstr("Slurm: 2 of 4"));
  EXPECT_THAT(WarningsOf(variables),
              ElementsAre("WORLD_SIZE=8 is ignored: RANK is not set"));
}

TEST(DetectEnvironment, NamesTheMalformedVariableAndItsValue) {
  const struct {
    Variables variables;
    std::string expected;
  } kRows[] = {
      {With(Torchrun(), {{"RANK", "abc"}}), "RANK=abc is not a number from 0"},
      {With(Torchrun(), {{"RANK", "-1"}}), "RANK=-1 is not a number from 0"},
      {With(Torchrun(), {{"RANK", "4"}}), "RANK=4 is not below WORLD_SIZE=4"},
      {With(Torchrun(), {{"RANK", "99999999999999999999"}}), "RANK=9999999999"},
      {With(Torchrun(), {{"WORLD_SIZE", "0"}}),
       "WORLD_SIZE=0 is not a number from 1"},
      {With(Torchrun(), {{"LOCAL_RANK", "4"}}),
       "LOCAL_RANK=4 is not a number from 0 to 3"},
      {With(Torchrun(), {{"MASTER_PORT", "0"}}), "MASTER_PORT=0"},
      {With(Torchrun(), {{"MASTER_PORT", "65536"}}),
       "MASTER_PORT=65536 is not a number from 1 to 65535"},
      {With(Slurm(), {{"SLURM_PROCID", "4"}}),
       "SLURM_PROCID=4 is not below SLURM_NTASKS=4"},
      {With(Slurm(), {{"SLURM_NTASKS", "x"}}), "SLURM_NTASKS=x"},
      {With(Slurm(), {{"SLURM_LOCALID", "x"}}), "SLURM_LOCALID=x"},
      {With(Slurm(), {{"SLURM_JOB_ID", "x"}}), "SLURM_JOB_ID=x"},
      {With(Slurm(), {{"SLURM_STEP_ID", "x"}}), "SLURM_STEP_ID=x"},
      {With(Slurm(), {{"SLURM_STEP_NODELIST", "n[1"}}),
       "SLURM_STEP_NODELIST=n[1 is no list of hosts: a ']' is missing"},
      {With(OpenMpi(), {{"OMPI_COMM_WORLD_RANK", "3"}}),
       "OMPI_COMM_WORLD_RANK=3 is not below OMPI_COMM_WORLD_SIZE=3"},
      {With(OpenMpi(), {{"OMPI_COMM_WORLD_SIZE", "0"}}),
       "OMPI_COMM_WORLD_SIZE=0"},
      {With(OpenMpi(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
       "OMPI_COMM_WORLD_LOCAL_SIZE=4"},
  };
  for (const auto& row : kRows) {
    EXPECT_THAT(
        Detected(row.variables),
        AllOf(HasSubstr("the environment variable"), HasSubstr(row.expected)));
  }
}

TEST(ReadVariables, ReadsThisProcesssEnvironment) {
  setenv("PSRING_TEST_VARIABLE", "a=b", 1);
  EXPECT_EQ(ReadVariables()["PSRING_TEST_VARIABLE"], "a=b");
  unsetenv("PSRING_TEST_VARIABLE");
  EXPECT_EQ(ReadVariables().count("PSRING_TEST_VARIABLE"), 0u);
}

std::vector<std::string> Expand(absl::string_view list, int max = 100) {
  const auto hosts = ExpandNodeList(list, max);
  if (hosts.ok()) return *hosts;
  return {absl::StrCat("error: ", hosts.status().message())};
}

TEST(ExpandNodeList, ExpandsRangesListsPaddingPrefixesAndSuffixes) {
  EXPECT_THAT(Expand("n[1-2],m[03,05-06]"),
              ElementsAre("n1", "n2", "m03", "m05", "m06"));
  EXPECT_THAT(Expand("login-1.site_a"), ElementsAre("login-1.site_a"));
  EXPECT_THAT(Expand("a[1-2]b"), ElementsAre("a1b", "a2b"));
  EXPECT_THAT(
      Expand("r[1-2]n[08-10]x"),
      ElementsAre("r1n08x", "r1n09x", "r1n10x", "r2n08x", "r2n09x", "r2n10x"));
  EXPECT_THAT(Expand("n[099-100]"), ElementsAre("n099", "n100"));
  EXPECT_THAT(Expand("n[9-10]"), ElementsAre("n9", "n10"));
  EXPECT_THAT(Expand("a,b[1],c"), ElementsAre("a", "b1", "c"));
}

TEST(ExpandNodeList, StopsAtTheNamesThatWereAskedFor) {
  EXPECT_THAT(Expand("n[1-999999999]", 2), ElementsAre("n1", "n2"));
  EXPECT_THAT(Expand("n[1-999999999]m[1-999999999]", 2),
              ElementsAre("n1m1", "n1m2"));
  EXPECT_THAT(Expand("a,b,c", 2), ElementsAre("a", "b"));
  std::string doublings;
  for (int i = 0; i < 80; ++i) doublings += "[1-2]";
  EXPECT_EQ(Expand(doublings, 3).size(), 3u);
  EXPECT_THAT(Expand("n[1-1,2-999999999],m[1-999999999]", 3),
              ElementsAre("n1", "n2", "n3"));
}

TEST(ExpandNodeList, RefusesWhatIsNoListAlsoBehindTheNamesAskedFor) {
  for (const std::string list : {"",           ",",        "a,",
                                 "n[",         "n[1",      "n]",
                                 "n1]",        "n[]",      "n[1,]",
                                 "n[2-1]",     "n[1-2-3]", "n[-1]",
                                 "n[1-]",      "n[a-b]",   "n[[1]]",
                                 "n[ 1]",      "n[+1]",    "n[99999999999]",
                                 "n[000x133]", "a b",      "a;b",
                                 "tcp://a"}) {
    EXPECT_THAT(Expand(list), ElementsAre(HasSubstr("error: "))) << list;
    EXPECT_THAT(Expand("first," + list, 1), ElementsAre(HasSubstr("error: ")))
        << list;
  }
}

TEST(ExpandNodeList, RefusesNamesThatNoHostHas) {
  std::string brackets;
  for (int i = 0; i < 40000; ++i) brackets += "[1]";
  EXPECT_THAT(Expand(brackets), ElementsAre(HasSubstr("longer than 255")));
  EXPECT_THAT(Expand(std::string(100000, 'n')),
              ElementsAre(HasSubstr("longer than 255")));
  EXPECT_THAT(Expand("n[" + std::string(100000, '0') + "1-2]"),
              ElementsAre(HasSubstr("is not a range")));
}

// ---- Place.

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
