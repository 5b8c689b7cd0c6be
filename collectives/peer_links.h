// This rank's way to every other one: a DEALER each, and what is on its way.
#ifndef PSRING_COLLECTIVES_PEER_LINKS_H_
#define PSRING_COLLECTIVES_PEER_LINKS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collectives/message.h"
#include "collectives/tickets.h"
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
class PeerLinks {
 public:
  // `inbox`, where others are heard, is waited on with the rest.
  PeerLinks(Context& context, const CollectiveJob& job, Socket& inbox)
      : context_(context),
        job_(job),
        peers_(job.endpoints.size()),
        sockets_{&inbox} {}

  // Connects at the first message. Never blocks.
  void Send(int rank, proto::CollectiveHeader header, Frame payload = {});

  // The inbox and all sockets so far, to wait on. What comes over the latter is
  // of their links alone (common/net/link.h): Tend takes it.
  const std::vector<Socket*>& sockets() const { return sockets_; }
  void Tend();

  // The first error of a socket.
  const absl::Status& status() const { return status_; }

  // Counts bytes that are on their way to `rank`; negative ones have arrived.
  void AddChunks(int rank, int64_t bytes) { peers_[rank].chunks += bytes; }
  void AddEager(int rank, int64_t bytes) { peers_[rank].eager += bytes; }
  bool HasRoomForChunk(int rank, int64_t bytes) const {
    return peers_[rank].chunks + bytes <= kPeerWindow;
  }
  bool HasRoomForEager(int rank, int64_t bytes) const {
    return peers_[rank].eager + bytes <= kEagerWindow;
  }

 private:
  struct Peer {
    std::unique_ptr<Socket> socket;
    int64_t chunks = 0;
    int64_t eager = 0;
  };

  Context& context_;
  const CollectiveJob& job_;
  std::vector<Peer> peers_;  // by rank
  std::vector<Socket*> sockets_;
  absl::Status status_;
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_PEER_LINKS_H_
