#include "ring/host_ranks.h"

#include <string>
#include <utility>

#include "common/log.h"
#include "common/model/layout.h"

namespace psring {

absl::StatusOr<std::unique_ptr<HostRanks>> HostRanks::Find(
    const proto::Welcome& job, FlatModel& flat,
    const Cancellation& cancellation, AllGather all_gather) {
  std::unique_ptr<HostRanks> ranks(new HostRanks(job, flat, cancellation));
  const int n = ranks->size();
  // One row a rank, as long as makes it that rank's slice of an allgather.
  const int row = (n + kAlignElements - 1) / kAlignElements * kAlignElements;
  std::vector<float> rows(n * row, 0.0f);
  ranks->MapPeers(rows.data() + ranks->rank() * row);
  if (absl::Status s = all_gather(absl::MakeSpan(rows)); !s.ok()) return s;
  std::vector<float> reach;
  for (int r = 0; r < n; ++r) {
    reach.insert(reach.end(), rows.begin() + r * row,
                 rows.begin() + r * row + n);
  }
  ranks->nodes_ = NodesOf(n, reach);
  return ranks;
}

void HostRanks::MapPeers(float* mine) {
  peers_.resize(size());
  if (flat_.arena == nullptr) return;
  mine[rank()] = 1.0f;
  for (int r = 0; r < size(); ++r) {
    const proto::Process& peer = job_.workers(r);
    if (r == rank() || !peer.has_shared_memory()) continue;
    auto arena = WorkerArena::Map(flat_.layout, flat_.arena->num_slots(),
                                  peer.shared_memory());
    if (arena.ok()) {
      peers_[r] = *std::move(arena);
      mine[r] = 1.0f;
    } else {
      LogDebug("worker $0 is not on this host: $1", r,
               arena.status().message());
    }
  }
}

WorkerArena* HostRanks::arena(int rank) const {
  return rank == job_.rank() ? flat_.arena.get() : peers_[rank].get();
}

std::unique_ptr<LocalGroup> HostRanks::MakeGroup(Track* track) const {
  if (flat_.arena == nullptr) return nullptr;
  std::vector<int> ranks;
  std::vector<WorkerArena*> arenas;
  const Node mine = node();
  for (int i = 0; i < mine.size; ++i) {
    ranks.push_back((mine.first + i) % size());
    arenas.push_back(arena(ranks.back()));
  }
  return std::make_unique<LocalGroup>(cancellation_, job_, std::move(ranks),
                                      std::move(arenas), track);
}

}  // namespace psring
