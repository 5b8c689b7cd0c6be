// Which ranks share memory with which, and the memory of those that share this
// one's.
#ifndef PSRING_RING_HOST_RANKS_H_
#define PSRING_RING_HOST_RANKS_H_

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/model/flat_model.h"
#include "common/model/worker_arena.h"
#include "common/net/cancellation.h"
#include "common/trace/timeline.h"
#include "protos/cluster.pb.h"
#include "ring/local_group.h"
#include "ring/routes.h"

namespace psring {

// Immutable; owned by an exchange, and outlives its communicator.
class HostRanks {
 public:
  // Communicator::AllGather.
  using AllGather = absl::FunctionRef<absl::Status(absl::Span<float>)>;

  // All ranks call it. Maps the arenas of the ranks that are on this host and
  // learns from all others whom they have mapped: ranks share memory when both
  // have mapped the other, as nobody relies on what only one side sees. `flat`
  // and `cancellation` outlive it. Errors are those of `all_gather`.
  static absl::StatusOr<std::unique_ptr<HostRanks>> Find(
      const proto::Welcome& job, FlatModel& flat,
      const Cancellation& cancellation, AllGather all_gather);

  int rank() const { return job_.rank(); }
  int size() const { return job_.workers_size(); }

  // The same on every rank.
  const std::vector<Node>& nodes() const { return nodes_; }
  // This rank's.
  Node node() const { return nodes_[NodeOfRank(nodes_, size(), rank())]; }
  // The memory of a rank of this node; null where this rank has no arena.
  WorkerArena* arena(int rank) const;

  // The ranks of this node, in the order in which they count; null: this one
  // has no arena. `track`: of the group's thread, or null. This object outlives
  // the group.
  std::unique_ptr<LocalGroup> MakeGroup(Track* track) const;

 private:
  HostRanks(const proto::Welcome& job, FlatModel& flat,
            const Cancellation& cancellation)
      : job_(job), flat_(flat), cancellation_(cancellation) {}

  // mine[r] becomes 1 where rank r's memory can be reached.
  void MapPeers(float* mine);

  const proto::Welcome job_;
  FlatModel& flat_;
  const Cancellation& cancellation_;
  std::vector<std::unique_ptr<WorkerArena>> peers_;  // by rank; null: not
                                                     // reached, or this one
  std::vector<Node> nodes_;
};

}  // namespace psring

#endif  // PSRING_RING_HOST_RANKS_H_
