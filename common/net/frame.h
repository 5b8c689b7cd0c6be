// The data plane's wire format, written once, in the notation of RFC 5234:
//
//   message  = [identity] [link] header payload
//   identity = 1*255OCTET
//   link     = 17OCTET                        ; link.h, taken off by the socket
//   header   = WireHeader
//   payload  = *float / *OCTET / encoded     ; as the header's dtype says
//   float    = 4OCTET
//
// Every part of a message is a ZeroMQ frame. Only a ROUTER's messages have an
// identity, which says whom they are from or for; it never travels. The header
// is protobuf (protos/wire.proto), and with its dtype the payload is:
//
//   FLOAT32  num_elements floats, little-endian, of any alignment
//   BYTES    num_elements octets
//   ENCODED  num_elements gradients; common/optim/compression.h has the grammar
//
// A payload is at most kMaxPayloadBytes, and so are the floats of an encoded
// one. Whatever does not match is an error that says how, before any payload
// byte is touched; the size of an encoded one is its decoder's to check.
#ifndef PSRING_COMMON_NET_FRAME_H_
#define PSRING_COMMON_NET_FRAME_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/net/socket.h"
#include "protos/wire.pb.h"

namespace psring {

inline constexpr int64_t kMaxPayloadElements = 1 << 20;
inline constexpr int64_t kMaxPayloadBytes = kMaxPayloadElements * 4;

struct DataMessage {
  std::string peer;  // a ROUTER's; empty at a DEALER
  proto::WireHeader header;
  Frame payload;
};

// The options of every data socket. `peer_key`: of one that connects.
SocketOptions DataSocketOptions(std::string peer_key = "");

absl::Status SendData(Socket& socket, DataMessage message);

// `at_router`: whether an identity frame leads; the sender is then a worker,
// and the one whose key it has.
absl::StatusOr<DataMessage> ParseData(Frames frames, bool at_router);
// The same, where the header's Frame::proven_rank is `proven_rank`.
absl::StatusOr<DataMessage> ParseData(Frames frames, bool at_router,
                                      int proven_rank);

}  // namespace psring

#endif  // PSRING_COMMON_NET_FRAME_H_
