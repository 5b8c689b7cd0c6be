#include "tests/common/cluster/many_members.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/cluster/coordinator.h"
#include "common/cluster/member.h"
#include "common/process/open_files.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

// ZeroMQ's default limit is 1,023 sockets a context, and a member has several.
constexpr int kMembersOfAContext = 100;

// So many threads on a few cores say their heartbeats late, where the machine
// is busy with other things, too.
constexpr absl::Duration kPatience = absl::Minutes(1);

MembershipOptions RingOf(int members) {
  MembershipOptions options;
  options.mode = proto::RING;
  options.heartbeat_timeout = kPatience;
  options.num_servers = 0;
  options.num_workers = members;
  return options;
}

// Writes the coordinator's port to `out`, and what it has cost when `in` ends.
[[noreturn]] void RunCoordinator(int members, int in, int out) {
  CoordinatorCost cost;
  {
    Context context;
    auto coordinator =
        Coordinator::Start(context, {"127.0.0.1", 0}, RingOf(members));
    if (!coordinator.ok()) _exit(1);
    const int port = ParseEndpoint((*coordinator)->endpoint())->port;
    if (write(out, &port, sizeof(port)) != sizeof(port)) _exit(1);
    char end = 0;
    if (read(in, &end, 1) < 0) _exit(1);
  }
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  cost.cpu = absl::DurationFromTimeval(usage.ru_utime) +
             absl::DurationFromTimeval(usage.ru_stime);
  cost.peak_memory_bytes = int64_t{1024} * usage.ru_maxrss;
  _exit(write(out, &cost, sizeof(cost)) == sizeof(cost) ? 0 : 1);
}

absl::Status BeMember(Context& context, int rank, int port) {
  Cancellation cancellation;
  MemberOptions options;
  options.coordinator = absl::StrCat("tcp://127.0.0.1:", port);
  options.join.set_role(proto::WORKER);
  options.join.set_mode(proto::RING);
  options.join.set_wanted_rank(rank);
  options.join.set_host("host");
  options.join.set_pid(100000 + rank);
  options.join.set_address("127.0.0.1");
  options.heartbeat_timeout = kPatience;
  auto member = Member::Join(context, cancellation, options);
  if (!member.ok()) return member.status();
  const auto all = (*member)->Gather("barrier", absl::StrCat(rank), Soon());
  if (!all.ok()) return all.status();
  for (size_t r = 0; r < all->size(); ++r) {
    if ((*all)[r] != absl::StrCat(r)) return absl::InternalError("wrong rank");
  }
  return (*member)->Leave(absl::OkStatus(), Soon());
}

absl::Status BeMembers(int members, int port) {
  std::vector<std::unique_ptr<Context>> contexts;
  std::vector<absl::Status> results(members);
  std::vector<std::thread> threads;
  for (int rank = 0; rank < members; ++rank) {
    if (rank % kMembersOfAContext == 0) {
      contexts.push_back(std::make_unique<Context>());
    }
    threads.emplace_back([&, rank, context = contexts.back().get()] {
      results[rank] = BeMember(*context, rank, port);
    });
  }
  absl::Status status;
  for (int rank = 0; rank < members; ++rank) {
    threads[rank].join();
    status.Update(results[rank]);
  }
  return status;
}

}  // namespace

absl::StatusOr<CoordinatorCost> RunManyMembers(int members) {
  AllowAllFiles();
  int to[2], from[2];
  if (pipe(to) != 0 || pipe(from) != 0) return absl::InternalError("pipe");
  const pid_t child = fork();
  if (child == 0) {
    close(to[1]);
    RunCoordinator(members, to[0], from[1]);
  }
  close(to[0]);
  close(from[1]);
  int port = 0;
  absl::Status status = absl::InternalError("the coordinator does not start");
  CoordinatorCost cost;
  const Time start = Now();
  if (read(from[0], &port, sizeof(port)) == sizeof(port)) {
    status = BeMembers(members, port);
  }
  const absl::Duration wall = Now() - start;
  close(to[1]);
  if (status.ok() && read(from[0], &cost, sizeof(cost)) != sizeof(cost)) {
    status = absl::InternalError("the coordinator says nothing");
  }
  close(from[0]);
  waitpid(child, nullptr, 0);
  if (!status.ok()) return status;
  cost.wall = wall;
  return cost;
}

}  // namespace psring
