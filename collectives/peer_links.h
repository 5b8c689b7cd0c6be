// This rank's way to every other one: a DEALER each.
#ifndef PSRING_COLLECTIVES_PEER_LINKS_H_
#define PSRING_COLLECTIVES_PEER_LINKS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "collectives/outbox.h"
#include "collectives/tickets.h"
#include "common/net/socket.h"
#include "protos/collective.pb.h"

namespace psring {

// The collectives' thread's own.
class PeerLinks : public Outbox {
 public:
  // `inbox`, where others are heard, is waited on with the rest.
  PeerLinks(Context& context, const CollectiveJob& job, Socket& inbox)
      : Outbox(job.endpoints.size()),
        context_(context),
        job_(job),
        by_rank_(job.endpoints.size()),
        sockets_{&inbox} {}

  // Connects at the first message.
  void Send(int rank, proto::CollectiveHeader header,
            Frame payload = {}) override;

  // The inbox and all sockets so far, to wait on. What comes over the latter is
  // of their links alone (common/net/link.h): Tend takes it.
  const std::vector<Socket*>& sockets() const { return sockets_; }
  // At ranks that have `left` nobody may listen any more, which is no error.
  void Tend(absl::Span<const int> left);

  // The first error of a socket.
  const absl::Status& status() const { return status_; }

 private:
  Context& context_;
  const CollectiveJob& job_;
  std::vector<std::unique_ptr<Socket>> by_rank_;  // null: no message yet
  std::vector<Socket*> sockets_;
  absl::Status status_;
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_PEER_LINKS_H_
