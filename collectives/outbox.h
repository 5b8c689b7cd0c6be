// What an operation says to other ranks, and what of it is on its way.
#ifndef PSRING_COLLECTIVES_OUTBOX_H_
#define PSRING_COLLECTIVES_OUTBOX_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "collectives/message.h"
#include "common/net/socket.h"
#include "protos/collective.pb.h"

namespace psring {

// Bytes to one rank that it has not acknowledged: of one flow, and of all. A
// flow of which nothing is on its way may always send one chunk: a rank that
// holds chunks back until others have sent theirs holds up no other operation.
inline constexpr int64_t kFlowWindow = 1 << 20;
inline constexpr int64_t kSharedFlowWindow = 4 << 20;  // in shared memory
inline constexpr int64_t kPeerWindow = 16 << 20;
// Bytes to one rank with calls that it may not have called yet.
inline constexpr int64_t kEagerWindow = 4 << 20;

// For whoever runs the mesh.
class Outbox {
 public:
  virtual ~Outbox() = default;

  // Never blocks.
  virtual void Send(int rank, proto::CollectiveHeader header,
                    Frame payload = {}) = 0;
  // Puts what goes along with a CALL into memory that `rank` reads; the slot's
  // number in the CALL, 0: there is none.
  virtual uint32_t ShareWithCall(int /*rank*/, absl::string_view /*bytes*/) {
    return 0;
  }
  struct SentChunk {
    int64_t bytes = 0;
    bool shared = false;  // in memory that the receiver reads
  };
  // A CHUNK of the first of `bytes`, which are copied.
  virtual SentChunk SendChunk(int rank, proto::CollectiveHeader header,
                              absl::string_view bytes) {
    const absl::string_view chunk = bytes.substr(0, kChunkBytes);
    Send(rank, std::move(header), Frame::Copy(chunk));
    return {static_cast<int64_t>(chunk.size()), false};
  }

  // Counts bytes that are on their way to `rank`; negative ones have arrived.
  void AddChunks(int rank, int64_t bytes) { peers_[rank].chunks += bytes; }
  void AddEager(int rank, int64_t bytes) { peers_[rank].eager += bytes; }
  // For how many bytes of a flow there is room, of which so many are on their
  // way.
  int64_t RoomForChunks(int rank, int64_t on_the_way) const {
    return std::min(FlowWindow(rank) - on_the_way,
                    kPeerWindow - peers_[rank].chunks);
  }
  bool HasRoomForEager(int rank, int64_t bytes) const {
    return peers_[rank].eager + bytes <= kEagerWindow;
  }
  // Of all ranks.
  int64_t bytes_on_their_way() const {
    int64_t bytes = 0;
    for (const Peer& peer : peers_) bytes += peer.chunks + peer.eager;
    return bytes;
  }

 protected:
  explicit Outbox(size_t num_ranks) : peers_(num_ranks) {}
  virtual int64_t FlowWindow(int) const { return kFlowWindow; }

 private:
  struct Peer {
    int64_t chunks = 0;
    int64_t eager = 0;
  };

  std::vector<Peer> peers_;  // by rank
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_OUTBOX_H_
