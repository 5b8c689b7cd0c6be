// What ranks send one another for collectives, in the notation of RFC 5234:
//
//   message = [identity] header payload
//   header  = CollectiveHeader       ; protos/collective.proto
//   payload = *OCTET                 ; of a CALL or a CHUNK, else nothing
//
// Every part is a ZeroMQ frame, or a part of a letter (collectives/mailbox.h);
// the identity as in common/net/frame.h. Whatever does not match is an error
// that says how, before any payload is touched.
#ifndef PSRING_COLLECTIVES_MESSAGE_H_
#define PSRING_COLLECTIVES_MESSAGE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/socket.h"
#include "protos/collective.pb.h"

namespace psring {

// The most of a flow that one message carries; a multiple of every element.
inline constexpr int64_t kChunkBytes = 256 << 10;
// The same of a chunk in shared memory; a multiple of kChunkBytes.
inline constexpr int64_t kSharedChunkBytes = 1 << 20;
// What goes along with a CALL, before it is known whether the receiver calls.
inline constexpr int64_t kEagerBytes = 8 << 10;
// Chunks travel in one of two rounds.
inline constexpr uint32_t kNumRounds = 2;
inline constexpr int kMaxWaits = 16;  // in an ANSWER
inline constexpr size_t kMaxTextBytes = 4096;

struct CollectiveMessage {
  std::string peer;  // its identity
  proto::CollectiveHeader header;
  Frame payload;
};

// To whom messages come.
struct Addressee {
  uint64_t job_epoch = 0;
  int rank = 0;
  int size = 1;
};

SocketOptions CollectiveSocketOptions(std::string peer_key = "");

// Of a ROUTER. A CALL's `bytes` and whether a CHUNK is due are their
// operation's to check.
absl::StatusOr<CollectiveMessage> ParseCollective(Frames frames,
                                                  const Addressee& here);
// The same, where the header's Frame::proven_rank is `proven_rank`.
absl::StatusOr<CollectiveMessage> ParseCollective(Frames frames,
                                                  const Addressee& here,
                                                  int proven_rank);

// What a FAIL tells, with its sender, unless it names that itself.
absl::Status FailureIn(const proto::CollectiveHeader& fail);

}  // namespace psring

#endif  // PSRING_COLLECTIVES_MESSAGE_H_
