#include "common/cluster/script_placement.h"

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace psring {
namespace {

// More are a slip: each has a thread and memory of its own.
constexpr int kMaxServers = 1 << 16;

// Sets rank and size, and says where they are from.
absl::StatusOr<std::string> SetRank(const ScriptWish& wish,
                                    const LaunchEnvironment& env,
                                    Placement* p) {
  p->num_workers = wish.size > 0 ? wish.size : env.size;
  p->rank = wish.rank >= 0 ? wish.rank : env.rank;
  const bool alone = p->num_workers == 0 && p->rank <= 0;
  if (alone && !env.half.empty()) {
    return absl::InvalidArgumentError(env.half);
  }
  if (alone) p->num_workers = 1;
  if (p->num_workers == 1 && p->rank < 0) p->rank = 0;
  if (p->num_workers == 0 || p->rank < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        p->num_workers == 0 ? "the size of the job" : "this process's rank",
        " is missing: start the script with `psring run -n N`, torchrun, "
        "mpirun or srun, or set PSRING_RANK and PSRING_SIZE"));
  }
  if (p->rank >= p->num_workers) {
    return absl::InvalidArgumentError(
        absl::StrCat("rank ", p->rank, " of ", p->num_workers,
                     ": ranks count from 0 to ", p->num_workers - 1));
  }
  if (!env.source.empty() && p->num_workers != env.size) {
    p->warnings.push_back(absl::StrCat("size ", p->num_workers,
                                       " is used, but ", env.source,
                                       " started ", env.size, " processes"));
  }
  const bool by_hand = wish.rank >= 0 || wish.size > 0;
  return by_hand ? "the script" : alone ? "itself" : env.source;
}

// Where nobody gives the address. `psring run` always does.
std::string WhyNoCoordinator(const LaunchEnvironment& env) {
  if (env.source == kByHand) {
    return "PSRING_RANK and PSRING_SIZE are set, but PSRING_COORDINATOR is not";
  }
  return absl::StrCat(
      "the coordinator's address is missing",
      env.source.empty() ? "" : absl::StrCat(": ", env.source, " tells none"));
}

absl::StatusOr<std::string> SetCoordinator(const ScriptWish& wish,
                                           const LaunchEnvironment& env,
                                           Placement* p) {
  if (!wish.coordinator.empty()) {
    const auto given = ParseHostPort(wish.coordinator);
    if (!given.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("coordinator: ", given.status().message()));
    }
    p->coordinator = *given;
    return "the script";
  }
  if (!env.coordinator_host.empty()) {
    p->coordinator = {env.coordinator_host, env.coordinator_port};
    return env.source;
  }
  if (p->num_workers == 1) {
    p->coordinator = {"127.0.0.1", 0};
    return "the only process";
  }
  return absl::InvalidArgumentError(absl::StrCat(
      WhyNoCoordinator(env),
      ". Set PSRING_COORDINATOR=HOST:PORT on all processes: the host of rank 0 "
      "and a free port of it, e.g. 10.0.0.1:7000"));
}

// Of a mode with servers.
absl::StatusOr<int> WishedServers(const ScriptWish& wish,
                                  const LaunchEnvironment& env,
                                  const Placement& p) {
  if (wish.servers_per_node == 0) {
    if (wish.num_servers >= 1) return wish.num_servers;
    return absl::InvalidArgumentError(absl::StrCat(
        "servers=", wish.num_servers, ": mode ps needs at least 1"));
  }
  if (p.num_workers == 1) return wish.servers_per_node;
  if (env.num_nodes > 0 && env.node >= 0 && env.local_rank >= 0) {
    return static_cast<int>(std::min<int64_t>(
        int64_t{wish.servers_per_node} * env.num_nodes, kMaxServers + 1));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "servers_per_node=", wish.servers_per_node, ": ",
      env.source.empty() ? "no launcher" : env.source,
      " does not tell how many hosts the job has and which this one is, as "
      "srun and torchrun do. Give servers, the number of all of them"));
}

absl::StatusOr<int> NumServers(const ScriptWish& wish,
                               const LaunchEnvironment& env,
                               const Placement& p) {
  auto servers = WishedServers(wish, env, p);
  if (!servers.ok() || *servers <= kMaxServers) return servers;
  return absl::InvalidArgumentError(
      absl::StrCat("more than ", kMaxServers, " servers: give fewer"));
}

}  // namespace

absl::StatusOr<Placement> PlaceScript(const ScriptWish& wish,
                                      const LaunchEnvironment& environment) {
  Placement p;
  p.role = proto::WORKER;
  p.warnings = environment.warnings;
  const auto placed_by = SetRank(wish, environment, &p);
  if (!placed_by.ok()) return placed_by.status();
  if (!wish.ring_mode) {
    const auto servers = NumServers(wish, environment, p);
    if (!servers.ok()) return servers.status();
    p.num_servers = *servers;
  }
  const auto from = SetCoordinator(wish, environment, &p);
  if (!from.ok()) return from.status();
  p.local_rank = environment.local_rank;
  p.hosts_coordinator = p.rank == 0 && !environment.hosts_coordinator;
  p.summary = absl::StrCat(
      "worker ", p.rank, " of ", p.num_workers,
      wish.ring_mode ? "" : absl::StrCat(", ", p.num_servers, " servers"),
      ", by ", *placed_by, "; ", p.hosts_coordinator ? "hosts" : "joins",
      " the coordinator at ", ToString(p.coordinator), " (", *from, ")");
  return p;
}

std::vector<int> ServersOf(const ScriptWish& wish,
                           const LaunchEnvironment& environment,
                           const Placement& worker) {
  std::vector<int> servers;
  if (wish.servers_per_node == 0 || worker.num_workers == 1) {
    for (int64_t s = worker.rank; s < worker.num_servers;
         s += worker.num_workers) {
      servers.push_back(static_cast<int>(s));
    }
  } else if (environment.local_rank == 0) {
    const int64_t first = int64_t{environment.node} * wish.servers_per_node;
    const int64_t end =
        std::min<int64_t>(worker.num_servers, first + wish.servers_per_node);
    for (int64_t s = first; s < end; ++s) {
      servers.push_back(static_cast<int>(s));
    }
  }
  return servers;
}

Placement PlaceServer(const Placement& worker, int rank,
                      const HostPort& coordinator) {
  Placement p;
  p.role = proto::PS;
  p.rank = rank;
  p.coordinator = coordinator;
  p.num_servers = worker.num_servers;
  p.num_workers = worker.num_workers;
  p.summary = absl::StrCat("ps ", rank, " of ", p.num_servers, ", by worker ",
                           worker.rank);
  return p;
}

}  // namespace psring
