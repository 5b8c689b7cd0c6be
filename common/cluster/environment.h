// What `psring run`, torchrun, Slurm, Open MPI and Kubernetes say in
// environment variables.
//
// DetectEnvironment is pure.
#ifndef PSRING_COMMON_CLUSTER_ENVIRONMENT_H_
#define PSRING_COMMON_CLUSTER_ENVIRONMENT_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace psring {

using Variables = std::map<std::string, std::string>;

// This process's environment. What else may read it: docs/style.md.
Variables ReadVariables();

// Sets those that are not set, for libraries that read them. Before other
// threads read the environment.
void SetVariables(const Variables& variables);

// The same of all; those that had another value are told in the log.
void ReplaceVariables(const Variables& variables);

inline constexpr char kPsringRun[] = "psring run";
// Somebody or another program has set the variables that psring run sets.
inline constexpr char kByHand[] = "whoever set PSRING_RANK";

// What a launcher told this process.
struct LaunchEnvironment {
  // kPsringRun, kByHand (also psring.spark and psring.ray), "torchrun", "Open
  // MPI", "MPICH" (also Intel MPI's), "Slurm", "Kubeflow Trainer",
  // "Kubernetes"; empty: nothing tells a rank
  std::string source;
  // What is wrong where somebody has set PSRING_RANK or PSRING_SIZE, one of
  // them alone, and nothing else tells a rank; empty: nothing.
  std::string half;
  int rank = -1;  // among all processes of the job
  int size = 0;
  int local_rank = -1;           // among those on this host; -1: not told
  int node = -1;                 // this host among the job's; -1: not told
  int num_nodes = 0;             // hosts of the job; 0: not told
  int workers_wanted = 0;        // by each process, as a launcher of workers;
                                 // 0: not told
  std::string coordinator_host;  // empty: the launcher names no address
  int coordinator_port = 0;
  bool hosts_coordinator = false;  // the launcher itself does
  std::vector<std::string> warnings;
};

// "rank 2 of 4".
std::string RankOf(const LaunchEnvironment& environment);

// The first of psring run, torchrun, Open MPI, MPICH, Slurm, Kubeflow Trainer
// and Kubernetes that gives a rank and a size, and the address in
// PSRING_COORDINATOR before its own; a warning if another gives different ones.
// INVALID_ARGUMENT names a malformed variable and its value. The shell of a
// Slurm batch script or of an interactive allocation is not a launched task. A
// pod of Kubernetes knows its index, of an Indexed Job or of a StatefulSet, but
// no size: that is PSRING_SIZE's to say.
absl::StatusOr<LaunchEnvironment> DetectEnvironment(const Variables& variables);

}  // namespace psring

#endif  // PSRING_COMMON_CLUSTER_ENVIRONMENT_H_
