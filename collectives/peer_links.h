// This rank's way to every other one: a DEALER each.
#ifndef PSRING_COLLECTIVES_PEER_LINKS_H_
#define PSRING_COLLECTIVES_PEER_LINKS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "collectives/message.h"
#include "collectives/outbox.h"
#include "collectives/shared_chunks.h"
#include "collectives/tickets.h"
#include "common/net/socket.h"
#include "protos/collective.pb.h"

namespace psring {

// The collectives' thread's own.
class PeerLinks : public Outbox {
 public:
  // `inbox`, where others are heard, is waited on with the rest.
  // `shares_memory`: chunks for ranks of this host go through memory.
  PeerLinks(Context& context, const CollectiveJob& job, Socket& inbox,
            bool shares_memory)
      : Outbox(job.endpoints.size()),
        context_(context),
        job_(job),
        shares_memory_(shares_memory),
        by_rank_(job.endpoints.size()),
        sockets_{&inbox} {}

  // Connects at the first message.
  void Send(int rank, proto::CollectiveHeader header,
            Frame payload = {}) override;
  uint32_t ShareWithCall(int rank, absl::string_view bytes) override {
    return Share(rank, bytes, kNumCallSlots);
  }
  SentChunk SendChunk(int rank, proto::CollectiveHeader header,
                      absl::string_view bytes) override;

  // The memory of a rank that may be on this host.
  void OnOffer(const proto::CollectiveHeader& offer);
  // It can read this rank's, where that has been offered.
  void OnAccept(int rank) {
    by_rank_[rank].reads_memory = by_rank_[rank].offered;
  }
  // The payload of a CALL or a CHUNK. INVALID_ARGUMENT where its sender has no
  // such memory here.
  absl::Status TakeShared(CollectiveMessage& message);

  // The inbox and all sockets so far, to wait on. What comes over the latter is
  // of their links alone (common/net/link.h): Tend takes it.
  const std::vector<Socket*>& sockets() const { return sockets_; }
  // At ranks that have `left` nobody may listen any more, which is no error.
  void Tend(absl::Span<const int> left);

  // The first error of a socket.
  const absl::Status& status() const { return status_; }

 private:
  // Slots for what goes along with CALLs, which others may never take.
  static constexpr int kNumCallSlots = kNumChunkSlots / 2;

  struct Peer {
    std::unique_ptr<Socket> socket;      // null: no message yet
    std::unique_ptr<PeerChunks> chunks;  // null: none that are read here
    bool offered = false;                // this rank's memory
    bool reads_memory = false;
  };

  int64_t FlowWindow(int rank) const override {
    return by_rank_[rank].reads_memory ? kSharedFlowWindow : kFlowWindow;
  }
  // The slot's number of at most `num_slots`; 0: none.
  uint32_t Share(int rank, absl::string_view bytes, int num_slots);
  void Offer(int rank);

  Context& context_;
  const CollectiveJob& job_;
  bool shares_memory_;
  std::unique_ptr<SharedChunks> own_;  // null before the first offer
  std::vector<Peer> by_rank_;
  std::vector<Socket*> sockets_;
  absl::Status status_;
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_PEER_LINKS_H_
