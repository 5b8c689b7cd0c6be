#include "common/cluster/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace psring {
namespace {

constexpr size_t kMaxHostName = 255;

// From here on, Slurm's step ids name shells and daemons: the interactive step
// of an allocation, the batch script, the extern step, a pending step.
constexpr int64_t kFirstSpecialStep = 4294967290;

// Coordinators take ports 20000 to 39999 where the launcher names none.
constexpr int kFirstPort = 20000;
constexpr int kNumPorts = 20000;
constexpr int kMaxPort = 65535;

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

void ReadTorchrunCoordinator(Reader& reader, LaunchEnvironment* result) {
  const std::string host = reader.Text("MASTER_ADDR");
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
  const auto hosts = ExpandNodeList(reader.Text(list), 1);
  if (!hosts.ok()) {
    reader.Fail(list,
                absl::StrCat("no list of hosts: ", hosts.status().message()));
    return;
  }
  result->coordinator_host = hosts->front();
  // Successive steps land far from each other and from successive jobs.
  result->coordinator_port = kFirstPort + (job + 7919 * step) % kNumPorts;
}

// FNV-1a (Fowler, Noll, Vo): the same in every process, which absl's hash is
// not.
uint64_t StableHash(absl::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (const unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
  return hash;
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
    result->coordinator_host = "127.0.0.1";
    result->coordinator_port = kFirstPort + StableHash(job) % kNumPorts;
    return;
  }
}

// By precedence.
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", ReadTorchrunCoordinator},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", ReadOpenMpiCoordinator},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
     ReadSlurmCoordinator},
};

// ---- Lists of hosts.

absl::StatusOr<int> ParseHostNumber(absl::string_view text) {
  int value = 0;
  const bool digits =
      std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
  if (digits && absl::SimpleAtoi(text, &value)) return value;
  return absl::InvalidArgumentError(
      absl::StrCat("'", text, "' is not a host's number"));
}

// "03,05-06" -> 03, 05, 06: the first `max` of them, though all is checked.
absl::StatusOr<std::vector<std::string>> ExpandRanges(absl::string_view ranges,
                                                      size_t max) {
  std::vector<std::string> result;
  for (const absl::string_view range : absl::StrSplit(ranges, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    const auto first = ParseHostNumber(ends.front());
    if (!first.ok()) return first.status();
    const auto last = ParseHostNumber(ends.back());
    if (!last.ok()) return last.status();
    if (ends.size() > 2 || *first > *last ||
        ends.front().size() > kMaxHostName) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", range, "' is not a range"));
    }
    const int width = static_cast<int>(ends.front().size());
    for (int64_t n = *first; n <= *last && result.size() < max; ++n) {
      result.push_back(absl::StrFormat("%0*d", width, n));
    }
  }
  return result;
}

bool IsHostNameCharacter(char c) {
  return absl::ascii_isalnum(c) || c == '-' || c == '.' || c == '_';
}

// Every name of `hosts` followed by every one of `endings`, the first `max`.
absl::StatusOr<std::vector<std::string>> Product(
    const std::vector<std::string>& hosts,
    const std::vector<std::string>& endings, size_t max) {
  std::vector<std::string> result;
  for (const std::string& host : hosts) {
    for (const std::string& ending : endings) {
      if (result.size() == max) return result;
      if (host.size() + ending.size() > kMaxHostName) {
        return absl::InvalidArgumentError(absl::StrCat(
            "a host's name is longer than ", kMaxHostName, " characters"));
      }
      result.push_back(host + ending);
    }
  }
  return result;
}

// One item of the list: plain text and brackets in turn, "a[1-2]b[3-4]".
absl::StatusOr<std::vector<std::string>> ExpandItem(absl::string_view item,
                                                    size_t max) {
  std::vector<std::string> hosts = {""};
  if (item.empty()) return absl::InvalidArgumentError("a host's name is empty");
  while (!item.empty()) {
    const bool bracket = item.front() == '[';
    const size_t end = item.find(bracket ? ']' : '[');
    if (bracket && end == absl::string_view::npos) {
      return absl::InvalidArgumentError("a ']' is missing");
    }
    absl::StatusOr<std::vector<std::string>> endings;
    if (bracket) {
      endings = ExpandRanges(item.substr(1, end - 1), max);
      if (!endings.ok()) return endings.status();
    } else {
      const absl::string_view text = item.substr(0, end);
      if (!std::all_of(text.begin(), text.end(), IsHostNameCharacter)) {
        return absl::InvalidArgumentError(
            absl::StrCat("'", text, "' is not part of a host's name"));
      }
      endings = std::vector<std::string>{std::string(text)};
    }
    auto longer = Product(hosts, *endings, max);
    if (!longer.ok()) return longer.status();
    hosts = *std::move(longer);
    item.remove_prefix(std::min(item.size(), bracket ? end + 1 : end));
  }
  return hosts;
}

// Where the list's first item ends: at a comma outside brackets.
size_t EndOfItem(absl::string_view list) {
  bool inside = false;
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] == '[') inside = true;
    if (list[i] == ']') inside = false;
    if (list[i] == ',' && !inside) return i;
  }
  return list.size();
}

// "rank 2 of 4".
std::string RankOf(const LaunchEnvironment& e) {
  return absl::StrCat("rank ", e.rank, " of ", e.size);
}

// ---- Flags.

// What the launcher alone makes of this process.
struct Share {
  proto::Role role;
  int rank;  // within the role
  int num_servers;
  int num_workers;
};

Share ShareOf(const ClusterFlags& flags, const LaunchEnvironment& env) {
  const int servers = flags.ring_mode ? 0 : std::max(1, flags.num_servers);
  const bool is_server = env.rank < servers;
  return {is_server ? proto::PS : proto::WORKER,
          is_server ? env.rank : env.rank - servers, servers,
          env.size - servers};
}

// "ps 0", "worker 3".
std::string NameOf(proto::Role role, int rank) {
  return absl::StrCat(role == proto::PS ? "ps " : "worker ", rank);
}

// srun --pty and the like: one process, whose flags tell of a larger job.
bool LaunchedAlone(const ClusterFlags& flags, const LaunchEnvironment& env) {
  return env.size == 1 && !flags.coordinator.empty() &&
         (!flags.ring_mode || flags.num_workers > 1);
}

absl::Status CheckFlags(const ClusterFlags& flags) {
  auto out_of_range = [](const char* flag, int value, int min) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, "=", value, " is out of range: at least ", min));
  };
  if (flags.rank < -1) return out_of_range("--rank", flags.rank, 0);
  if (flags.num_workers != -1 && flags.num_workers < 1) {
    return out_of_range("--workers", flags.num_workers, 1);
  }
  if (flags.ring_mode && flags.is_ps_process) {
    return absl::InvalidArgumentError(
        "--mode=ring has no servers: start `psring worker` only");
  }
  if (!flags.ring_mode && flags.num_servers != -1 && flags.num_servers < 1) {
    return out_of_range("--servers", flags.num_servers, 1);
  }
  return absl::OkStatus();
}

void SetNumWorkers(const ClusterFlags& flags, const LaunchEnvironment& env,
                   int share, Placement* p) {
  p->num_workers = flags.num_workers > 0 ? flags.num_workers : share;
  if (p->num_workers == share) return;
  p->warnings.push_back(absl::StrCat(
      "--workers=", flags.num_workers, " is used, though ", env.source,
      " started ", env.size, " processes, of which ", share, " are workers"));
}

absl::Status PlaceByLauncher(const ClusterFlags& flags,
                             const LaunchEnvironment& env, Placement* p) {
  const Share share = ShareOf(flags, env);
  const std::string started =
      absl::StrCat(env.source, " started ", env.size,
                   " processes, and --servers=", share.num_servers,
                   flags.num_servers < 0 ? " (default)" : "");
  if (share.num_workers < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        started, " leaves none for a worker: start more, or fewer servers"));
  }
  if (flags.is_ps_process && share.role == proto::WORKER) {
    return absl::InvalidArgumentError(
        absl::StrCat(started, " makes ", RankOf(env), " a worker: start it as ",
                     "`psring worker`, or raise --servers"));
  }
  p->role = share.role;
  p->rank = share.rank;
  p->local_rank = env.local_rank;
  p->num_servers = share.num_servers;
  p->hosts_coordinator = env.rank == 0;
  SetNumWorkers(flags, env, share.num_workers, p);
  if (flags.host_coordinator && !p->hosts_coordinator) {
    p->warnings.push_back(absl::StrCat("--host-coordinator is ignored on ",
                                       RankOf(env), " (", env.source,
                                       "): rank 0 hosts it"));
  }
  return absl::OkStatus();
}

// The environment of a process that is placed by its flags fills what they
// leave open.
void CompareWithEnvironment(const ClusterFlags& flags,
                            const LaunchEnvironment& env, Placement* p) {
  const Share share = ShareOf(flags, env);
  if (LaunchedAlone(flags, env)) {
    p->warnings.push_back(absl::StrCat(
        env.source,
        " started this process alone: its flags, with --coordinator=",
        flags.coordinator, ", place it in a larger job"));
    return;
  }
  if (share.num_workers > 0) SetNumWorkers(flags, env, share.num_workers, p);
  if (share.role == p->role && share.rank == p->rank) {
    p->local_rank = env.local_rank;
    return;
  }
  p->warnings.push_back(absl::StrCat(
      "--rank=", flags.rank, " makes this process ", NameOf(p->role, p->rank),
      ", though ", env.source, " makes it ", NameOf(share.role, share.rank),
      " (", RankOf(env), ")"));
}

absl::Status PlaceByHand(const ClusterFlags& flags,
                         const LaunchEnvironment& env, Placement* p) {
  p->role = flags.is_ps_process ? proto::PS : proto::WORKER;
  p->rank = flags.rank;
  p->num_workers = std::max(0, flags.num_workers);
  p->num_servers = flags.ring_mode ? 0 : std::max(0, flags.num_servers);
  if (!env.source.empty()) CompareWithEnvironment(flags, env, p);
  p->hosts_coordinator =
      flags.host_coordinator ||
      (flags.ring_mode &&
       (flags.rank == 0 || (flags.rank < 0 && flags.num_workers == 1)));
  if (!p->hosts_coordinator) return absl::OkStatus();
  if (p->num_workers < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--workers=N is missing: this process hosts the coordinator (",
        flags.host_coordinator ? "--host-coordinator" : "--rank=0",
        "), which waits for that many"));
  }
  if (!flags.ring_mode) p->num_servers = std::max(1, p->num_servers);
  const bool is_first = flags.ring_mode || flags.is_ps_process;
  if (is_first) p->rank = std::max(0, p->rank);
  return absl::OkStatus();
}

absl::Status MissingCoordinator(const LaunchEnvironment& env) {
  return absl::InvalidArgumentError(
      env.source.empty()
          ? "--coordinator=HOST:PORT is missing, e.g. "
            "--coordinator=10.0.0.1:7000"
          : absl::StrCat("--coordinator=HOST:PORT is missing: ", env.source,
                         " tells no address for it here. Name the host of rank "
                         "0 and a free port of it, e.g. "
                         "--coordinator=10.0.0.1:7000"));
}

// Sets the address and says where it is from.
absl::StatusOr<std::string> SetCoordinator(const ClusterFlags& flags,
                                           const LaunchEnvironment& env,
                                           Placement* p) {
  const HostPort told = {env.coordinator_host, env.coordinator_port};
  if (flags.coordinator.empty()) {
    p->coordinator = told;
    if (!told.host.empty()) return env.source;
    p->coordinator = {"127.0.0.1", 0};
    const bool alone =
        flags.ring_mode && p->hosts_coordinator && p->num_workers == 1;
    if (alone) return "the only process";
    return MissingCoordinator(env);
  }
  const auto given = ParseHostPort(flags.coordinator);
  if (!given.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--coordinator: ", given.status().message()));
  }
  p->coordinator = *given;
  if (!told.host.empty() && ToString(told) != ToString(*given)) {
    p->warnings.push_back(absl::StrCat("--coordinator=", flags.coordinator,
                                       " is used, though ", env.source,
                                       " gives ", ToString(told)));
  }
  if (given->port == 0 && !p->hosts_coordinator) {
    return absl::InvalidArgumentError(
        absl::StrCat("--coordinator=", flags.coordinator,
                     ": only the process that hosts the coordinator may leave "
                     "the port to the system (0)"));
  }
  return "--coordinator";
}

absl::Status CheckRank(const Placement& p) {
  const bool ps = p.role == proto::PS;
  const int promised = ps ? p.num_servers : p.num_workers;
  if (promised == 0 || p.rank < promised) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      NameOf(p.role, p.rank), " is one too many: ranks 0 to ", promised - 1,
      " belong to ", ps ? "--servers=" : "--workers=", promised));
}

// "worker 1 of 3, 2 servers, by Slurm (rank 3 of 5); joins the coordinator at
// n1:20042 (Slurm)"; "?" is what this process was not told.
std::string Summarize(const ClusterFlags& flags, const Placement& p,
                      const std::string& placed_by,
                      const std::string& coordinator_from) {
  auto known = [](int n, int min) {
    return n < min ? std::string("?") : absl::StrCat(n);
  };
  const std::string servers = known(p.num_servers, 1);
  const std::string workers = known(p.num_workers, 1);
  const bool ps = p.role == proto::PS;
  std::string who = absl::StrCat(ps ? "ps " : "worker ", known(p.rank, 0),
                                 " of ", ps ? servers : workers);
  if (!flags.ring_mode) {
    absl::StrAppend(&who, ", ", ps ? workers : servers,
                    ps ? " workers" : " servers");
  }
  return absl::StrCat(who, ", by ", placed_by, "; ",
                      p.hosts_coordinator ? "hosts" : "joins",
                      " the coordinator at ", ToString(p.coordinator), " (",
                      coordinator_from, ")");
}

}  // namespace

Variables ReadVariables() {
  Variables variables;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::pair<std::string, std::string> variable =
        absl::StrSplit(*entry, absl::MaxSplits('=', 1));
    variables.insert(variable);
  }
  return variables;
}

absl::StatusOr<LaunchEnvironment> DetectEnvironment(
    const Variables& variables) {
  Reader reader(variables);
  std::vector<std::string> warnings;
  const bool slurm = IsSlurmTask(reader);
  std::optional<LaunchEnvironment> used;
  for (const Launcher& launcher : kLaunchers) {
    if (launcher.read_coordinator == ReadSlurmCoordinator && !slurm) continue;
    auto found = ReadRank(launcher, reader, &warnings);
    if (!found) continue;
    if (!used) {
      launcher.read_coordinator(reader, &*found);
      used = std::move(found);
    } else if (found->rank != used->rank || found->size != used->size) {
      warnings.push_back(absl::StrCat(
          used->source, " gives ", RankOf(*used), ", ", found->source,
          " gives ", RankOf(*found), ": ", used->source, " is used"));
    }
  }
  if (!reader.status().ok()) return reader.status();
  if (!used) used.emplace();
  used->warnings = std::move(warnings);
  return *std::move(used);
}

absl::StatusOr<std::vector<std::string>> ExpandNodeList(absl::string_view list,
                                                        int max_hosts) {
  const size_t max = std::max(1, max_hosts);
  std::vector<std::string> hosts;
  while (true) {
    const size_t end = EndOfItem(list);
    const auto item = ExpandItem(list.substr(0, end), max);
    if (!item.ok()) return item.status();
    const size_t room = std::min(item->size(), max - hosts.size());
    hosts.insert(hosts.end(), item->begin(), item->begin() + room);
    if (end == list.size()) return hosts;
    list.remove_prefix(end + 1);
  }
}

absl::StatusOr<Placement> Place(const ClusterFlags& flags,
                                const LaunchEnvironment& environment) {
  if (absl::Status s = CheckFlags(flags); !s.ok()) return s;
  Placement p;
  p.warnings = environment.warnings;
  if (flags.ring_mode && flags.num_servers != -1) {
    p.warnings.push_back(absl::StrCat("--servers=", flags.num_servers,
                                      " is ignored: --mode=ring has none"));
  }
  const bool by_hand = environment.source.empty() || flags.rank >= 0 ||
                       LaunchedAlone(flags, environment);
  absl::Status s = by_hand ? PlaceByHand(flags, environment, &p)
                           : PlaceByLauncher(flags, environment, &p);
  if (!s.ok()) return s;
  const auto from = SetCoordinator(flags, environment, &p);
  if (!from.ok()) return from.status();
  if (s = CheckRank(p); !s.ok()) return s;
  p.summary = Summarize(flags, p,
                        by_hand ? "flags"
                                : absl::StrCat(environment.source, " (",
                                               RankOf(environment), ")"),
                        *from);
  return p;
}

}  // namespace psring
