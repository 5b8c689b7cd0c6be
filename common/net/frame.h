// The data plane's wire format, written once:
//
//   message  = [identity] header payload     ; ZeroMQ frames
//   identity = 1*255OCTET                    ; only at a ROUTER: whom it is
//   from
//                                            ; (or for), never on the wire
//   header   = WireHeader                    ; protobuf, protos/wire.proto
//   payload  = num_elements * element        ; little-endian, no alignment
//            / encoded                       ; dtype ENCODED
//   element  = 4OCTET                        ; dtype FLOAT32
//            / OCTET                         ; dtype BYTES
//   encoded  = *OCTET                        ; num_elements gradients: the
//                                            ; grammar is in
//                                            ; common/optim/compression.h
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

// The options of every data socket.
SocketOptions DataSocketOptions();

absl::Status SendData(Socket& socket, DataMessage message);

// `at_router`: whether an identity frame leads.
absl::StatusOr<DataMessage> ParseData(Frames frames, bool at_router);

}  // namespace psring

#endif  // PSRING_COMMON_NET_FRAME_H_
