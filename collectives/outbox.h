// What an operation says to other ranks, and what of it is on its way.
#ifndef PSRING_COLLECTIVES_OUTBOX_H_
#define PSRING_COLLECTIVES_OUTBOX_H_

#include <cstdint>
#include <vector>

#include "common/net/socket.h"
#include "protos/collective.pb.h"

namespace psring {

// Bytes to one rank that it has not acknowledged: of one flow, and of all. A
// flow of which nothing is on its way may always send one chunk: a rank that
// holds chunks back until others have sent theirs holds up no other operation.
inline constexpr int64_t kFlowWindow = 1 << 20;
inline constexpr int64_t kPeerWindow = 16 << 20;
// Bytes to one rank with calls that it may not have called yet.
inline constexpr int64_t kEagerWindow = 4 << 20;

// The collectives' thread's own.
class Outbox {
 public:
  virtual ~Outbox() = default;

  // Never blocks.
  virtual void Send(int rank, proto::CollectiveHeader header,
                    Frame payload = {}) = 0;

  // Counts bytes that are on their way to `rank`; negative ones have arrived.
  void AddChunks(int rank, int64_t bytes) { peers_[rank].chunks += bytes; }
  void AddEager(int rank, int64_t bytes) { peers_[rank].eager += bytes; }
  bool HasRoomForChunk(int rank, int64_t bytes) const {
    return peers_[rank].chunks + bytes <= kPeerWindow;
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

 private:
  struct Peer {
    int64_t chunks = 0;
    int64_t eager = 0;
  };

  std::vector<Peer> peers_;  // by rank
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_OUTBOX_H_
