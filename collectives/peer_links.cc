#include "collectives/peer_links.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "collectives/message.h"

namespace psring {

void PeerLinks::Send(int rank, proto::CollectiveHeader header, Frame payload) {
  std::unique_ptr<Socket>& peer = by_rank_[rank];
  if (peer == nullptr) {
    auto socket = Socket::Connect(context_, job_.endpoints[rank],
                                  CollectiveSocketOptions(job_.KeyOf(rank)));
    if (!socket.ok()) return status_.Update(socket.status());
    peer = *std::move(socket);
    sockets_.push_back(peer.get());
  }
  header.set_job_epoch(job_.epoch);
  header.set_sender(static_cast<uint32_t>(job_.rank));
  Frames frames;
  frames.push_back(Frame::Copy(header.SerializeAsString()));
  frames.push_back(std::move(payload));
  status_.Update(peer->Send(std::move(frames)));
}

void PeerLinks::Tend(absl::Span<const int> left) {
  for (int rank = 0; rank < static_cast<int>(by_rank_.size()); ++rank) {
    if (by_rank_[rank] == nullptr) continue;
    const absl::Status status = by_rank_[rank]->TryReceive().status();
    if (!absl::c_linear_search(left, rank)) status_.Update(status);
  }
}

}  // namespace psring
