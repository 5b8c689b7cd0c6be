#include "common/cluster/placement.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace psring {
namespace {

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
  if (env.hosts_coordinator && !flags.ring_mode) {
    return absl::InvalidArgumentError(
        absl::StrCat(env.source,
                     " starts scripts, whose servers live in the workers' "
                     "processes: `psring launch` starts the programs of "
                     "--mode=ps"));
  }
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
  p->hosts_coordinator = env.rank == 0 && !env.hosts_coordinator;
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
                    ps ? " worker" : " server",
                    (ps ? workers : servers) == "1" ? "" : "s");
  }
  return absl::StrCat(who, ", by ", placed_by, "; ",
                      p.hosts_coordinator ? "hosts" : "joins",
                      " the coordinator at ", ToString(p.coordinator), " (",
                      coordinator_from, ")");
}

}  // namespace

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
