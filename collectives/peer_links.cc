#include "collectives/peer_links.h"

#include <random>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "collectives/mailbox.h"
#include "common/clock.h"
#include "common/log.h"
#include "protos/cluster.pb.h"

namespace psring {

using proto::CollectiveHeader;

void PeerLinks::Send(int rank, CollectiveHeader header, Frame payload) {
  Peer& to = by_rank_[rank];
  if (shares_memory_ && !to.offered) Offer(rank);
  header.set_job_epoch(job_.epoch);
  header.set_sender(static_cast<uint32_t>(job_.rank));
  if (to.writer.has_value()) {
    to.writer->Write(header.SerializeAsString(), payload.view());
    return to.boxes->Notify();
  }
  std::unique_ptr<Socket>& peer = to.socket;
  if (peer == nullptr) {
    auto socket = Socket::Connect(context_, job_.endpoints[rank],
                                  CollectiveSocketOptions(job_.KeyOf(rank)));
    if (!socket.ok()) return status_.Update(socket.status());
    peer = *std::move(socket);
    sockets_.push_back(peer.get());
  }
  Frames frames;
  frames.push_back(Frame::Copy(header.SerializeAsString()));
  frames.push_back(std::move(payload));
  status_.Update(peer->Send(std::move(frames)));
}

Outbox::SentChunk PeerLinks::SendChunk(int rank, CollectiveHeader header,
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
  if (!by_rank_[rank].reads_memory) return 0;
  return static_cast<uint32_t>(own_->Put(bytes, num_slots) + 1);
}

absl::Status PeerLinks::MakeMemory() {
  if (own_boxes_ != nullptr) return absl::OkStatus();
  auto own = SharedChunks::Create();
  if (!own.ok()) return own.status();
  auto boxes = Mailboxes::Create(job_.size());
  if (!boxes.ok()) return boxes.status();
  own_ = *std::move(own);
  own_boxes_ = *std::move(boxes);
  return absl::OkStatus();
}

void PeerLinks::Offer(int rank) {
  if (absl::Status s = MakeMemory(); !s.ok()) {
    LogDebug("collectives share no memory: $0", s.message());
    shares_memory_ = false;
    return;
  }
  by_rank_[rank].offered = true;
  CollectiveHeader offer;
  offer.set_kind(CollectiveHeader::OFFER);
  offer.set_shared_memory(own_->address().SerializeAsString());
  offer.set_mailboxes(own_boxes_->address().SerializeAsString());
  Send(rank, std::move(offer));
}

void PeerLinks::OnOffer(const CollectiveHeader& offer) {
  const int rank = static_cast<int>(offer.sender());
  proto::SharedMemory chunks, boxes;
  if (!shares_memory_ || by_rank_[rank].chunks != nullptr ||
      !chunks.ParseFromString(offer.shared_memory()) ||
      !boxes.ParseFromString(offer.mailboxes()) ||
      chunks.pid() != job_.pids[rank] || boxes.pid() != job_.pids[rank]) {
    return;
  }
  auto mapped_chunks = PeerChunks::Map(chunks);
  auto mapped_boxes = PeerMailboxes::Map(boxes, job_.size());
  if (!mapped_chunks.ok() || !mapped_boxes.ok()) {
    LogDebug(
        "worker $0 is not on this host: $1", rank,
        (mapped_chunks.ok() ? mapped_boxes.status() : mapped_chunks.status())
            .message());
    return;
  }
  by_rank_[rank].chunks = *std::move(mapped_chunks);
  by_rank_[rank].boxes = *std::move(mapped_boxes);
  CollectiveHeader accept;
  accept.set_kind(CollectiveHeader::ACCEPT);
  Send(rank, std::move(accept));
  MaybeChangeOver(rank);
}

void PeerLinks::OnAccept(int rank) {
  by_rank_[rank].reads_memory = by_rank_[rank].offered;
  MaybeChangeOver(rank);
}

// To a mailbox, where the rank reads this one's memory and can be woken.
void PeerLinks::MaybeChangeOver(int rank) {
  Peer& peer = by_rank_[rank];
  if (!peer.reads_memory || peer.boxes == nullptr || peer.writer) return;
  auto writer = own_boxes_->Open(rank);
  if (!writer.ok()) {
    return LogDebug("worker $0 gets no mailbox: $1", rank,
                    writer.status().message());
  }
  CollectiveHeader last;
  last.set_kind(CollectiveHeader::MAILBOX);
  Send(rank, std::move(last));
  peer.writer.emplace(*std::move(writer));
  Count(peer);
}

absl::Status PeerLinks::OnMailbox(int rank) {
  Peer& peer = by_rank_[rank];
  if (peer.boxes == nullptr || std::exchange(peer.changed_over, true)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "rank ", rank, " changes over to a mailbox ",
        peer.boxes == nullptr ? "that is not read here" : "a second time"));
  }
  peer.reader.emplace(peer.boxes->Open(job_.rank));
  std::random_device random;
  peer.reader_name = absl::StrCat("mailbox ", rank, " ", random(), random());
  Count(peer);
  return absl::OkStatus();
}

std::optional<PeerLinks::Letter> PeerLinks::NextLetter() {
  for (size_t i = 0; i < by_rank_.size(); ++i) {
    last_reader_ = (last_reader_ + 1) % job_.size();
    Peer& peer = by_rank_[last_reader_];
    if (!peer.reader.has_value() || !peer.reader->HasInput()) continue;
    auto mail = peer.reader->Next();
    if (peer.reader->TakeWriterWaits()) peer.boxes->Notify();
    if (!mail.ok()) {
      if (peer.writer.has_value()) --num_by_mailbox_;
      peer.reader.reset();
      return Letter{last_reader_, mail.status()};
    }
    if (!mail->has_value()) continue;
    Frames frames;
    frames.push_back(Frame::Copy(peer.reader_name));
    frames.push_back(std::move((*mail)->header));
    frames.push_back(std::move((*mail)->payload));
    return Letter{last_reader_, std::move(frames)};
  }
  return std::nullopt;
}

bool PeerLinks::HasLetters() const {
  return absl::c_any_of(by_rank_, [](const Peer& peer) {
    return peer.reader.has_value() && peer.reader->HasInput();
  });
}

bool PeerLinks::PrepareToSleep(int num_news) {
  if (own_boxes_ == nullptr) return true;
  // First: whoever makes room, or writes, after the looks below rings.
  const bool asleep =
      !HasLetters() && own_boxes_->Sleep(keeps_any() ? 1 : num_news);
  Flush();
  return asleep && !HasLetters();
}

void PeerLinks::Wake() {
  if (own_boxes_ != nullptr) own_boxes_->Wake();
}

void PeerLinks::StayAwake() {
  if (own_boxes_ != nullptr) own_boxes_->StayAwake();
}

void PeerLinks::Flush() {
  for (Peer& peer : by_rank_) {
    if (peer.writer && peer.writer->Flush()) peer.boxes->Notify();
  }
}

bool PeerLinks::keeps_any() const {
  return absl::c_any_of(by_rank_, [](const Peer& peer) {
    return peer.writer.has_value() && peer.writer->keeps_any();
  });
}

bool PeerLinks::KeepsAny(absl::Span<const int> left) const {
  for (int rank = 0; rank < job_.size(); ++rank) {
    const Peer& peer = by_rank_[rank];
    if (peer.writer.has_value() && peer.writer->keeps_any() &&
        !peer.boxes->ReadsNoMore() && !absl::c_linear_search(left, rank)) {
      return true;
    }
  }
  return false;
}

void PeerLinks::Finish(absl::Span<const int> left, Time deadline) {
  if (own_boxes_ == nullptr) return;
  while (KeepsAny(left) && Now() < deadline) {
    // They may wait for room, too.
    while (Now() < deadline && NextLetter().has_value()) {
    }
    if (PrepareToSleep() && KeepsAny(left)) {
      const int doorbell[] = {doorbell_fd()};
      Wait(absl::Span<Socket* const>(), doorbell, deadline).IgnoreError();
    }
    Wake();
  }
  own_boxes_->ReadNoMore();
  for (Peer& peer : by_rank_) {
    if (peer.boxes != nullptr) peer.boxes->Notify();
  }
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
