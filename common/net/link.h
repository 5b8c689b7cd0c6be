// What keeps two sockets' conversation whole while its TCP connections come and
// go. Messages are numbered in each direction; each side says how far it has
// heard, and the other keeps what may have been lost and sends it again on a
// new connection. So a message arrives once and in order, or its peer is gone
// for good, which heartbeats find (common/cluster/membership.h). Pure: the
// numbers alone; socket.h keeps the messages.
//
// Every message begins with a frame of kLinkHeaderBytes:
//
//   header = kind number received ; a byte, and two of 8 bytes, little-endian
//
//   MESSAGE   the sender's number-th; frames of the protocol above follow
//   ACK       nothing but `received`
//   RESUME    a DEALER's first word on a new connection
//   RESUMED   its answer; both are followed by what the other has not received
#ifndef PSRING_COMMON_NET_LINK_H_
#define PSRING_COMMON_NET_LINK_H_

#include <array>
#include <cstdint>
#include <optional>

#include "absl/strings/string_view.h"

namespace psring {

struct LinkHeader {
  enum class Kind : uint8_t { kMessage = 1, kAck, kResume, kResumed };

  Kind kind = Kind::kMessage;
  uint64_t number = 0;    // of a message, from 1 on
  uint64_t received = 0;  // the last message that the sender of this has heard
};

inline constexpr size_t kLinkHeaderBytes = 17;

std::array<char, kLinkHeaderBytes> Encode(const LinkHeader& header);
// Nothing where the bytes are none.
std::optional<LinkHeader> ParseLinkHeader(absl::string_view bytes);

// One side of a conversation.
class Link {
  using Kind = LinkHeader::Kind;

 public:
  // The header of a message that is sent for the first time.
  LinkHeader Next() { return {Kind::kMessage, ++sent_, Told()}; }
  // Of the i-th message that the peer may not have, sent again.
  LinkHeader Again(size_t i) {
    return {Kind::kMessage, heard_ + 1 + i, Told()};
  }
  // Of any other kind.
  LinkHeader Say(Kind kind) { return {kind, 0, Told()}; }

  struct News {
    bool deliver = false;     // a message that is due
    size_t acknowledged = 0;  // so many more of ours have arrived
  };
  // The peer has said this. Nothing where it cannot have.
  std::optional<News> OnHeader(const LinkHeader& header);

  // How many of ours the peer may not have.
  size_t unacknowledged() const { return static_cast<size_t>(sent_ - heard_); }
  // How many of the peer's it does not know to have arrived.
  uint64_t untold() const { return received_ - told_; }

 private:
  uint64_t Told() { return told_ = received_; }

  uint64_t sent_ = 0;
  uint64_t heard_ = 0;  // by the peer, as it has said
  uint64_t received_ = 0;
  uint64_t told_ = 0;
};

}  // namespace psring

#endif  // PSRING_COMMON_NET_LINK_H_
