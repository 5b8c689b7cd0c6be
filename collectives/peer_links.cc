#include "collectives/peer_links.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/log.h"
#include "protos/cluster.pb.h"

namespace psring {

void PeerLinks::Send(int rank, proto::CollectiveHeader header, Frame payload) {
  std::unique_ptr<Socket>& peer = by_rank_[rank].socket;
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

Outbox::SentChunk PeerLinks::SendChunk(int rank, proto::CollectiveHeader header,
                                       absl::string_view bytes) {
  const absl::string_view chunk = bytes.substr(0, kSharedChunkBytes);
  const uint32_t number = Share(rank, chunk, kNumChunkSlots);
  if (number == 0) return Outbox::SendChunk(rank, std::move(header), bytes);
  header.set_slot_number(number);
  header.set_bytes(static_cast<int64_t>(chunk.size()));
  Send(rank, std::move(header));
  return {static_cast<int64_t>(chunk.size()), true};
}

uint32_t PeerLinks::Share(int rank, absl::string_view bytes, int num_slots) {
  if (shares_memory_ && !by_rank_[rank].offered) Offer(rank);
  if (!by_rank_[rank].reads_memory) return 0;
  return static_cast<uint32_t>(own_->Put(bytes, num_slots) + 1);
}

void PeerLinks::Offer(int rank) {
  if (own_ == nullptr) {
    auto own = SharedChunks::Create();
    if (!own.ok()) {
      LogDebug("collectives share no memory: $0", own.status().message());
      shares_memory_ = false;
      return;
    }
    own_ = *std::move(own);
  }
  by_rank_[rank].offered = true;
  proto::CollectiveHeader offer;
  offer.set_kind(proto::CollectiveHeader::OFFER);
  offer.set_shared_memory(own_->address().SerializeAsString());
  Send(rank, std::move(offer));
}

void PeerLinks::OnOffer(const proto::CollectiveHeader& offer) {
  const int rank = static_cast<int>(offer.sender());
  proto::SharedMemory address;
  if (!shares_memory_ || by_rank_[rank].chunks != nullptr ||
      !address.ParseFromString(offer.shared_memory()) ||
      address.pid() != job_.pids[rank]) {
    return;
  }
  auto chunks = PeerChunks::Map(address);
  if (!chunks.ok()) {
    LogDebug("worker $0 is not on this host: $1", rank,
             chunks.status().message());
    return;
  }
  by_rank_[rank].chunks = *std::move(chunks);
  proto::CollectiveHeader accept;
  accept.set_kind(proto::CollectiveHeader::ACCEPT);
  Send(rank, std::move(accept));
}

absl::Status PeerLinks::TakeShared(CollectiveMessage& message) {
  const uint32_t rank = message.header.sender();
  PeerChunks* const chunks = by_rank_[rank].chunks.get();
  if (chunks == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a chunk in memory that rank ", rank, " does not share with this one"));
  }
  auto payload =
      chunks->Take(static_cast<int>(message.header.slot_number() - 1),
                   message.header.bytes());
  if (!payload.ok()) return payload.status();
  message.payload = *std::move(payload);
  return absl::OkStatus();
}

void PeerLinks::Tend(absl::Span<const int> left) {
  for (int rank = 0; rank < static_cast<int>(by_rank_.size()); ++rank) {
    Socket* const socket = by_rank_[rank].socket.get();
    if (socket == nullptr) continue;
    const absl::Status status = socket->TryReceive().status();
    if (!absl::c_linear_search(left, rank)) status_.Update(status);
  }
}

}  // namespace psring
