#include "common/cluster/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

using ::testing::AllOf;
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
          {"SLURM_STEP_NUM_NODES", "2"},
          {"SLURM_STEP_NODELIST", "gnode[20,25]"},
          {"SLURM_JOB_NODELIST", "gnode[10,20,25,37]"},
          {"SLURM_NODELIST", "gnode[10,20,25,37]"},
          {"SLURMD_NODENAME", "gnode25"}};
}

// As `mpirun -n 6` of MPICH and of Intel MPI sets them.
Variables Hydra() {
  return {{"PMI_RANK", "5"},
          {"PMI_SIZE", "6"},
          {"PMI_FD", "8"},
          {"MPI_LOCALRANKID", "1"},
          {"MPI_LOCALNRANKS", "2"}};
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

// As a pod of Kubeflow Trainer has them, the second of three.
Variables Trainer() {
  return {{"JOB_COMPLETION_INDEX", "1"},
          {"PET_NNODES", "3"},
          {"PET_NPROC_PER_NODE", "1"},
          {"PET_NODE_RANK", "1"},
          {"PET_MASTER_ADDR", "train-node-0-0.train"},
          {"PET_MASTER_PORT", "29400"}};
}

// As the manifests of examples/kubernetes give them to the pod `name`, with
// what Kubernetes sets by itself.
Variables Pod(const std::string& name) {
  return {{"KUBERNETES_SERVICE_HOST", "10.96.0.1"},
          {"HOSTNAME", name},
          {"PSRING_SIZE", "4"},
          {"PSRING_COORDINATOR", "train-0.train:7000"}};
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

// "Slurm: 2 of 4, local 0, gnode20:28985"
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
      {With(Torchrun(), {{"LOCAL_WORLD_SIZE", "4"}}),
       "torchrun: 3 of 4, local 1, 127.0.0.1:29501"},
      {With(Slurm(), {{"SLURM_STEP_NODELIST", "gnode20"}}),
       "Slurm: 2 of 4, local 0, 127.0.0.1:28985"},
      {Slurm(), "Slurm: 2 of 4, local 0, gnode20:28985"},
      {With(Slurm(), {{"SLURM_STEP_NODELIST", ""}}),
       "Slurm: 2 of 4, local 0, gnode10:28985"},
      {With(Slurm(), {{"SLURM_STEP_ID", ""}}),
       "Slurm: 2 of 4, local 0, gnode20:28985"},
      {With(Slurm(), {{"SLURM_STEP_NODELIST", "n[001-999999999]"}}),
       "Slurm: 2 of 4, local 0, n001:28985"},
      {With(Slurm(), {{"SLURM_JOB_ID", ""}}), "Slurm: 2 of 4, local 0, :0"},
      {OpenMpi(), "Open MPI: 1 of 3, local 1, 127.0.0.1:25933"},
      {Hydra(), "MPICH: 5 of 6, local 1, :0"},
      {With(Slurm(), {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}}),
       "Slurm: 2 of 4, local 0, gnode20:28985"},
      {With(OpenMpi(), {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
       "Open MPI: 1 of 3, local 1, :0"},
      {With(OpenMpi(), {{"PMIX_NAMESPACE", ""},
                        {"OMPI_MCA_ess_base_jobid", ""},
                        {"OMPI_MCA_orte_ess_jobid", ""}}),
       "Open MPI: 1 of 3, local 1, :0"},
      {Trainer(),
       "Kubeflow Trainer: 1 of 3, local -1, "
       "train-node-0-0.train:29400"},
      {Both(Torchrun(), Trainer()), "torchrun: 3 of 4, local 1, node7:29501"},
      {Pod("train-2"), "Kubernetes: 2 of 4, local -1, train-0.train:7000"},
      {With(Pod("train-1-x7k2p"), {{"JOB_COMPLETION_INDEX", "1"}}),
       "Kubernetes: 1 of 4, local -1, train-0.train:7000"},
      {With(Pod("train-2"), {{"PSRING_RANK", "3"}}),
       "whoever set PSRING_RANK: 3 of 4, local -1, train-0.train:7000"},
      // A pod of its own, and a job's pod that nobody has told its size.
      {With(Pod("train-2"), {{"PSRING_SIZE", ""}, {"PSRING_COORDINATOR", ""}}),
       "by hand"},
      {{{"JOB_COMPLETION_INDEX", "1"}}, "by hand"},
  };
  for (const auto& row : kRows) {
    EXPECT_EQ(Detected(row.variables), row.expected);
    EXPECT_THAT(WarningsOf(row.variables), IsEmpty()) << row.expected;
  }
}

// hydra starts its own processes by srun; theirs are not Slurm's ranks.
TEST(DetectEnvironment, PrefersHydraToTheTaskThatItLivesIn) {
  const Variables both = With(Slurm(), Hydra());
  EXPECT_EQ(Detected(both), "MPICH: 5 of 6, local 1, :0");
  EXPECT_THAT(WarningsOf(both),
              ElementsAre(HasSubstr("MPICH gives rank 5 of 6, Slurm gives")));
}

// Under `srun -n 2 psring run -n 2`, say. By hand it may be a mistake.
TEST(DetectEnvironment, PsringRunMakesMoreWorkersOfATask) {
  const Variables set = {{"PSRING_RANK", "3"}, {"PSRING_SIZE", "4"}};
  EXPECT_THAT(WarningsOf(With(set, Slurm())),
              ElementsAre(HasSubstr(
                  "whoever set PSRING_RANK gives rank 3 of 4, Slurm")));
  const Variables by_it =
      With(set, {{"PSRING_RESTARTS", "0"}, {"PSRING_COORDINATOR_HOSTED", "1"}});
  EXPECT_THAT(WarningsOf(With(by_it, Slurm())), ElementsAre());
}

TEST(DetectEnvironment, LaunchersTellWhichHostThisIs) {
  auto node = [](const Variables& variables) {
    const auto e = DetectEnvironment(variables);
    return e.ok() ? absl::StrCat(e->node, " of ", e->num_nodes) : "failed";
  };
  EXPECT_EQ(node(Slurm()), "1 of 2");
  EXPECT_EQ(node(Torchrun()), "1 of 2");
  EXPECT_EQ(node(Trainer()), "1 of 3");
  EXPECT_EQ(node(OpenMpi()), "-1 of 0");
  EXPECT_EQ(node(With(Slurm(), {{"SLURM_STEP_NUM_NODES", ""}})), "-1 of 0");
}

TEST(DetectEnvironment, ATrainersPodSaysHowManyWorkersItWants) {
  auto wanted = [](const std::string& text) {
    return DetectEnvironment(With(Trainer(), {{"PET_NPROC_PER_NODE", text}}))
        ->workers_wanted;
  };
  EXPECT_EQ(wanted("2"), 2);
  EXPECT_EQ(wanted("auto"), 0);
  EXPECT_EQ(wanted(""), 0);
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
  EXPECT_LT(last, 32768);
  const int other =
      port(With(OpenMpi(), {{"PMIX_NAMESPACE", "prterun-a-1@1"}}));
  EXPECT_NE(other, port(OpenMpi()));
  EXPECT_GE(other, 20000);
  EXPECT_LT(other, 32768);
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

// Each process would train by itself.
TEST(DetectEnvironment, SaysWhichHalfOfAPlaceIsMissing) {
  const auto half = [](const Variables& variables) {
    const auto detected = DetectEnvironment(variables);
    return detected.ok() ? detected->half : detected.status().ToString();
  };
  EXPECT_THAT(half({{"PSRING_SIZE", "3"}}),
              AllOf(HasSubstr("PSRING_SIZE=3 is set, but nothing says"),
                    HasSubstr("PSRING_RANK")));
  EXPECT_THAT(half({{"PSRING_RANK", "1"}}),
              HasSubstr("PSRING_RANK=1 is set, but PSRING_SIZE"));
  EXPECT_THAT(half(Pod("train-x4k2a")), HasSubstr("PSRING_SIZE=4 is set"));
  EXPECT_EQ(half({}), "");
  EXPECT_EQ(half({{"PSRING_RANK", "1"}, {"PSRING_SIZE", "3"}}), "");
  EXPECT_EQ(half(With(Slurm(), {{"PSRING_SIZE", "3"}})), "");
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
      {With(Trainer(), {{"PET_NODE_RANK", "3"}}),
       "PET_NODE_RANK=3 is not below PET_NNODES=3"},
      {With(Trainer(), {{"PET_NNODES", "1:4"}}),
       "PET_NNODES=1:4 is not a number"},
      {With(Pod("train-4"), {}), "HOSTNAME=train-4 is not below PSRING_SIZE=4"},
      {With(Pod("train-x4"), {{"JOB_COMPLETION_INDEX", "5"}}),
       "JOB_COMPLETION_INDEX=5 is not below PSRING_SIZE=4"},
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

// psring run says everything; by hand the address goes with any launcher.
TEST(DetectEnvironment, PsringsOwnVariablesGoBeforeOthers) {
  Variables variables = OpenMpi();
  variables["PSRING_COORDINATOR"] = "10.0.0.1:7000";
  auto detected = DetectEnvironment(variables);
  ASSERT_TRUE(detected.ok()) << detected.status();
  EXPECT_EQ(detected->source, "Open MPI");
  EXPECT_EQ(detected->coordinator_host, "10.0.0.1");
  EXPECT_EQ(detected->coordinator_port, 7000);
  EXPECT_FALSE(detected->hosts_coordinator);

  variables["PSRING_RANK"] = "3";
  variables["PSRING_SIZE"] = "4";
  variables["PSRING_COORDINATOR_HOSTED"] = "1";
  detected = DetectEnvironment(variables);
  ASSERT_TRUE(detected.ok()) << detected.status();
  EXPECT_EQ(detected->source, kByHand);
  EXPECT_EQ(detected->rank, 3);
  EXPECT_EQ(detected->size, 4);
  EXPECT_TRUE(detected->hosts_coordinator);
  EXPECT_THAT(detected->warnings, ElementsAre(HasSubstr("Open MPI gives")));

  variables["PSRING_COORDINATOR"] = "nowhere";
  EXPECT_THAT(
      std::string(DetectEnvironment(variables).status().message()),
      AllOf(HasSubstr("PSRING_COORDINATOR=nowhere"), HasSubstr("HOST:PORT")));
}

}  // namespace
}  // namespace psring
