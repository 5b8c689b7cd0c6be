#include "common/cluster/script_placement.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace psring {
namespace {

// Sets rank and size, and says where they are from.
absl::StatusOr<std::string> SetRank(const ScriptWish& wish,
                                    const LaunchEnvironment& env,
                                    Placement* p) {
  p->num_workers = wish.size > 0 ? wish.size : env.size;
  p->rank = wish.rank >= 0 ? wish.rank : env.rank;
  const bool alone = p->num_workers == 0 && p->rank <= 0;
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
      "the coordinator's address is missing",
      env.source.empty() ? "" : absl::StrCat(": ", env.source, " tells none"),
      ". Set PSRING_COORDINATOR=HOST:PORT on all processes: the host of rank 0 "
      "and a free port of it, e.g. 10.0.0.1:7000"));
}

}  // namespace

absl::StatusOr<Placement> PlaceScript(const ScriptWish& wish,
                                      const LaunchEnvironment& environment) {
  Placement p;
  p.role = proto::WORKER;
  p.warnings = environment.warnings;
  p.num_servers = wish.ring_mode ? 0 : wish.num_servers;
  if (!wish.ring_mode && wish.num_servers < 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "servers=", wish.num_servers, ": mode ps needs at least 1"));
  }
  const auto placed_by = SetRank(wish, environment, &p);
  if (!placed_by.ok()) return placed_by.status();
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
