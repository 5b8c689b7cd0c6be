#include "common/cluster/environment.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/cluster/node_list.h"
#include "common/fnv.h"
#include "common/log.h"
#include "common/net/address.h"

namespace psring {
namespace {

// From here on, Slurm's step ids name shells and daemons: the interactive step
// of an allocation, the batch script, the extern step, a pending step.
constexpr int64_t kFirstSpecialStep = 4294967290;

// Coordinators take ports 20000 to 32767 where the launcher names none: Linux
// gives those from 32768 on to connections.
constexpr int kFirstPort = 20000;
constexpr int kNumPorts = 12768;
constexpr int kMaxPort = 65535;

// Where all processes of a job share a host, nobody else need reach them.
constexpr char kThisHost[] = "127.0.0.1";

// Reads variables and keeps the first error.
class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  // Empty: not set, or set to nothing.
  std::string Text(const std::string& name) const {
    const auto it = variables_.find(name);
    return it == variables_.end() ? "" : it->second;
  }

  // -1: not set, or an error.
  int64_t Number(const std::string& name, int64_t min, int64_t max) {
    const std::string text = Text(name);
    int64_t value = 0;
    if (text.empty()) return -1;
    if (absl::SimpleAtoi(text, &value) && value >= min && value <= max) {
      return value;
    }
    Fail(name, absl::StrCat("not a number from ", min, " to ", max));
    return -1;
  }

  void Fail(const std::string& name, absl::string_view what) {
    status_.Update(absl::InvalidArgumentError(absl::StrCat(
        "the environment variable ", name, "=", Text(name), " is ", what)));
  }

  const absl::Status& status() const { return status_; }

 private:
  const Variables& variables_;
  absl::Status status_;
};

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
  const char* node;
  const char* num_nodes;
  // Fills the address where it is known.
  void (*read_coordinator)(Reader& reader, LaunchEnvironment* result);
};

// Nothing where the launcher's variables are not there. A rank without a size,
// or the reverse, is some other program's: it goes to `warnings`.
std::optional<LaunchEnvironment> ReadRank(const Launcher& launcher,
                                          Reader& reader,
                                          std::vector<std::string>* warnings) {
  const bool has_rank = !reader.Text(launcher.rank).empty();
  const bool has_size = !reader.Text(launcher.size).empty();
  if (has_rank != has_size) {
    const char* set = has_rank ? launcher.rank : launcher.size;
    const char* unset = has_rank ? launcher.size : launcher.rank;
    warnings->push_back(absl::StrCat(set, "=", reader.Text(set),
                                     " is ignored: ", unset, " is not set"));
  }
  if (!has_rank || !has_size) return std::nullopt;
  LaunchEnvironment result;
  result.source = launcher.name;
  result.size = reader.Number(launcher.size, 1, INT32_MAX);
  result.rank = reader.Number(launcher.rank, 0, INT32_MAX);
  if (result.rank >= result.size) {
    reader.Fail(launcher.rank,
                absl::StrCat("not below ", launcher.size, "=", result.size));
  }
  result.local_rank = reader.Number(launcher.local_rank, 0, result.size - 1);
  result.num_nodes =
      std::max<int>(0, reader.Number(launcher.num_nodes, 1, INT32_MAX));
  if (result.num_nodes > 0) {
    result.node = reader.Number(launcher.node, 0, result.num_nodes - 1);
  }
  return result;
}

std::string SlurmStep(const Reader& reader) {
  return reader.Text("SLURM_STEP_ID").empty() ? "SLURM_STEPID"
                                              : "SLURM_STEP_ID";
}

// Only a step that srun started has tasks.
bool IsSlurmTask(Reader& reader) {
  return reader.Number(SlurmStep(reader), 0, INT64_MAX) < kFirstSpecialStep &&
         !reader.Text(SlurmStep(reader)).empty();
}

// By psring run, and by hand for those whose launcher is not known here.
void ReadPsringCoordinator(Reader& reader, LaunchEnvironment* result) {
  const std::string text = reader.Text("PSRING_COORDINATOR");
  result->hosts_coordinator =
      reader.Number("PSRING_COORDINATOR_HOSTED", 0, 1) == 1;
  if (text.empty()) return;
  const auto address = ParseHostPort(text);
  if (!address.ok()) {
    reader.Fail("PSRING_COORDINATOR", "not HOST:PORT");
    return;
  }
  result->coordinator_host = address->host;
  result->coordinator_port = address->port;
}

void ReadTorchrunCoordinator(Reader& reader, LaunchEnvironment* result) {
  std::string host = reader.Text("MASTER_ADDR");
  const int here = reader.Number("LOCAL_WORLD_SIZE", 1, result->size);
  if (!host.empty() && here == result->size) host = kThisHost;
  const int port = reader.Number("MASTER_PORT", 1, kMaxPort);
  if (host.empty() || port < 0) return;
  // torchrun's agent keeps a store of its own on MASTER_PORT while the job
  // runs, so the coordinator takes its neighbour.
  const bool taken = reader.Text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  const int neighbour = port < kMaxPort ? port + 1 : port - 1;
  result->coordinator_host = host;
  result->coordinator_port = taken ? neighbour : port;
}

void ReadSlurmCoordinator(Reader& reader, LaunchEnvironment* result) {
  const char* list = reader.Text("SLURM_STEP_NODELIST").empty()
                         ? "SLURM_JOB_NODELIST"
                         : "SLURM_STEP_NODELIST";
  const int64_t job = reader.Number("SLURM_JOB_ID", 0, UINT32_MAX);
  const int64_t step = reader.Number(SlurmStep(reader), 0, UINT32_MAX);
  if (reader.Text(list).empty() || job < 0) return;
  const auto hosts = ExpandNodeList(reader.Text(list), 2);
  if (!hosts.ok()) {
    reader.Fail(list,
                absl::StrCat("no list of hosts: ", hosts.status().message()));
    return;
  }
  result->coordinator_host = hosts->size() > 1 ? hosts->front() : kThisHost;
  // Successive steps land far from each other and from successive jobs.
  result->coordinator_port = kFirstPort + (job + 7919 * step) % kNumPorts;
}

// Open MPI names no host: an address is known only where all share this one.
void ReadOpenMpiCoordinator(Reader& reader, LaunchEnvironment* result) {
  const int local_size =
      reader.Number("OMPI_COMM_WORLD_LOCAL_SIZE", 1, result->size);
  if (local_size != result->size) return;
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid",
                           "OMPI_MCA_orte_ess_jobid"}) {
    const std::string job = reader.Text(name);
    if (job.empty()) continue;
    result->coordinator_host = kThisHost;
    result->coordinator_port = kFirstPort + Fnv().Add(job).value() % kNumPorts;
    return;
  }
}

// The processes of hydra, which share no address that its variables tell.
void ReadHydraCoordinator(Reader&, LaunchEnvironment*) {}

// What torchrun's own flags are in a pod of Kubeflow Trainer.
void ReadTrainerCoordinator(Reader& reader, LaunchEnvironment* result) {
  result->coordinator_host = reader.Text("PET_MASTER_ADDR");
  result->coordinator_port = reader.Number("PET_MASTER_PORT", 1, kMaxPort);
  if (result->coordinator_port < 0) result->coordinator_host.clear();
  // It may be a word: "auto", "cpu".
  int workers = 0;
  if (absl::SimpleAtoi(reader.Text("PET_NPROC_PER_NODE"), &workers)) {
    result->workers_wanted = std::max(0, workers);
  }
}

// By precedence.
constexpr Launcher kLaunchers[] = {
    {kPsringRun, "PSRING_RANK", "PSRING_SIZE", "PSRING_LOCAL_RANK",
     "PSRING_NODE", "PSRING_NODES", ReadPsringCoordinator},
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "GROUP_RANK",
     "GROUP_WORLD_SIZE", ReadTorchrunCoordinator},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "", "", ReadOpenMpiCoordinator},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "", "",
     ReadHydraCoordinator},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NODEID",
     "SLURM_STEP_NUM_NODES", ReadSlurmCoordinator},
    {"Kubeflow Trainer", "PET_NODE_RANK", "PET_NNODES", "", "PET_NODE_RANK",
     "PET_NNODES", ReadTrainerCoordinator},
};

// The number at the end of a pod's name, "worker-3", where it is the ordinal of
// a StatefulSet; empty: there is none.
std::string OrdinalOf(const std::string& pod) {
  const size_t dash = pod.rfind('-');
  int ordinal = 0;
  if (dash == std::string::npos ||
      !absl::SimpleAtoi(pod.substr(dash + 1), &ordinal)) {
    return "";
  }
  return pod.substr(dash + 1);
}

// A pod that knows its index, with the size in PSRING_SIZE, becomes a process
// that knows its rank: the variables that say so, else none.
Variables RankOfPod(Reader& reader) {
  if (!reader.Text("PSRING_RANK").empty() ||
      reader.Text("PSRING_SIZE").empty()) {
    return {};
  }
  std::string from = "JOB_COMPLETION_INDEX";
  std::string index = reader.Text(from);
  if (index.empty() && !reader.Text("KUBERNETES_SERVICE_HOST").empty()) {
    from = "HOSTNAME";
    index = OrdinalOf(reader.Text(from));
  }
  if (index.empty()) return {};
  int rank = 0;
  const int64_t size = reader.Number("PSRING_SIZE", 1, INT32_MAX);
  if (size > 0 && absl::SimpleAtoi(index, &rank) && rank >= size) {
    reader.Fail(from, absl::StrCat("not below PSRING_SIZE=", size));
  }
  return {{"PSRING_RANK", index}};
}

// LaunchEnvironment::half, where nothing tells a rank.
std::string HalfOfPlace(const Reader& reader) {
  const std::string rank = reader.Text("PSRING_RANK");
  const std::string size = reader.Text("PSRING_SIZE");
  if (rank.empty() == size.empty()) return "";
  return size.empty()
             ? absl::StrCat("PSRING_RANK=", rank,
                            " is set, but PSRING_SIZE, the number of workers, "
                            "is not: set both or neither")
             : absl::StrCat(
                   "PSRING_SIZE=", size,
                   " is set, but nothing says which of them this process is: "
                   "PSRING_RANK, or in a pod JOB_COMPLETION_INDEX or a name "
                   "that ends in a number. Set one, or leave PSRING_SIZE out");
}

// The process's. A program may have its own copy of libc's `environ`, as
// Debian's and Ubuntu's python3 do. libc then uses that one, but a library that
// prefers its own symbols (RTLD_DEEPBIND) sees libc's, which stays empty.
char** Environ() {
  void* const program = dlopen(nullptr, RTLD_LAZY);
  if (program == nullptr) return environ;
  void* const found = dlsym(program, "environ");
  dlclose(program);
  return found == nullptr ? environ : *static_cast<char***>(found);
}

}  // namespace

std::string RankOf(const LaunchEnvironment& e) {
  return absl::StrCat("rank ", e.rank, " of ", e.size);
}

Variables ReadVariables() {
  Variables variables;
  char** const all = Environ();
  for (char** entry = all; entry != nullptr && *entry != nullptr; ++entry) {
    const std::pair<std::string, std::string> variable =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    variables.insert(variable);
  }
  return variables;
}

void SetVariables(const Variables& variables) {
  for (const auto& [name, value] : variables) {
    setenv(name.c_str(), value.c_str(), /*overwrite=*/0);
  }
}

void ReplaceVariables(const Variables& variables) {
  for (const auto& [name, value] : variables) {
    const char* before = getenv(name.c_str());
    if (before != nullptr && before != value) {
      LogInfo("sets $0=$1, which was $2", name, value, before);
    }
    setenv(name.c_str(), value.c_str(), /*overwrite=*/1);
  }
}

absl::StatusOr<LaunchEnvironment> DetectEnvironment(
    const Variables& variables) {
  Reader told(variables);
  Variables all = RankOfPod(told);
  if (!told.status().ok()) return told.status();
  const bool in_pod = !all.empty();
  all.insert(variables.begin(), variables.end());
  Reader reader(all);
  std::vector<std::string> warnings;
  const bool slurm = IsSlurmTask(reader);
  // It says so also to what another launcher started, which it became: its own
  // workers it gives a coordinator, too.
  const bool by_psring_run = !reader.Text("PSRING_RESTARTS").empty() &&
                             reader.Text("PSRING_COORDINATOR_HOSTED") == "1";
  std::optional<LaunchEnvironment> used;
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.read_coordinator == ReadSlurmCoordinator && !slurm) continue;
    // Slurm sets these, too; what hydra starts by srun are other processes.
    if (launcher.read_coordinator == ReadHydraCoordinator && slurm &&
        reader.Text("PMI_RANK") == reader.Text("SLURM_PROCID") &&
        reader.Text("PMI_SIZE") == reader.Text("SLURM_NTASKS")) {
      continue;
    }
    // What a pod was told, the launcher that was started there has used up.
    if (launcher.read_coordinator == ReadTrainerCoordinator && used) continue;
    auto found = ReadRank(launcher, reader, &warnings);
    if (!found) continue;
    if (!used) {
      launcher.read_coordinator(reader, &*found);
      used = std::move(found);
      if (used->source == kPsringRun && !by_psring_run) {
        used->source = in_pod ? "Kubernetes" : kByHand;
      }
    } else if (by_psring_run && used->source == kPsringRun) {
      // It made workers of its own, of one or more tasks that another started.
    } else if (found->rank != used->rank || found->size != used->size) {
      warnings.push_back(absl::StrCat(
          used->source, " gives ", RankOf(*used), ", ", found->source,
          " gives ", RankOf(*found), ": ", used->source, " is used"));
    }
  }
  if (!used) {
    used.emplace();
    used->half = HalfOfPlace(reader);
  }
  // By hand, for launchers that name no address.
  if (!reader.Text("PSRING_COORDINATOR").empty()) {
    ReadPsringCoordinator(reader, &*used);
  }
  if (!reader.status().ok()) return reader.status();
  used->warnings = std::move(warnings);
  return *std::move(used);
}

}  // namespace psring
