#include "common/net/frame.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace psring {
using proto::WireHeader;

SocketOptions DataSocketOptions(std::string peer_key) {
  SocketOptions options;
  options.peer_key = std::move(peer_key);
  options.max_frame_bytes = kMaxPayloadBytes;
  options.unreachable_after = kUnreachableAfter;
  options.linger = absl::Seconds(2);
  return options;
}

absl::Status SendData(Socket& socket, DataMessage message) {
  if (static_cast<int64_t>(message.payload.size()) > kMaxPayloadBytes) {
    return absl::InternalError(absl::StrCat(
        "a message of ", message.payload.size(), " bytes, where a peer takes ",
        kMaxPayloadBytes, " at most"));
  }
  Frames frames;
  frames.reserve(3);
  if (!message.peer.empty()) frames.push_back(Frame::Copy(message.peer));
  frames.push_back(Frame::Copy(message.header.SerializeAsString()));
  frames.push_back(std::move(message.payload));
  return socket.Send(std::move(frames));
}

absl::StatusOr<DataMessage> ParseData(Frames frames, bool at_router) {
  const int proven_rank = ProvenRank(frames);
  return ParseData(std::move(frames), at_router, proven_rank);
}

absl::StatusOr<DataMessage> ParseData(Frames frames, bool at_router,
                                      int proven_rank) {
  const size_t expected = at_router ? 3 : 2;
  if (frames.size() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        frames.size(), " frames where ", expected, " make a message"));
  }
  DataMessage message;
  if (at_router) message.peer = std::string(frames[0].view());
  Frame& header = frames[expected - 2];
  if (!message.header.ParseFromArray(header.data(),
                                     static_cast<int>(header.size()))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "a header of ", header.size(), " bytes that is not a WireHeader"));
  }
  if (at_router) {
    absl::Status known = CheckSender(proven_rank, message.header.sender());
    if (!known.ok()) return known;
  }
  message.payload = std::move(frames[expected - 1]);
  const WireHeader::Kind kind = message.header.kind();
  if (!WireHeader::Kind_IsValid(kind) || kind == WireHeader::KIND_UNSPECIFIED) {
    return absl::InvalidArgumentError(absl::StrCat("unknown kind ", kind));
  }
  const uint64_t num_elements = message.header.num_elements();
  const size_t payload_bytes = message.payload.size();
  const bool fits = payload_bytes <= kMaxPayloadBytes;
  size_t element_bytes = 1;
  switch (message.header.dtype()) {
    case WireHeader::FLOAT32:
      element_bytes = sizeof(float);
      break;
    case WireHeader::BYTES:
      break;
    case WireHeader::ENCODED:
      if (fits && num_elements <= kMaxPayloadElements) return message;
      return absl::InvalidArgumentError(
          absl::StrCat("an encoded payload of ", payload_bytes, " bytes for ",
                       num_elements, " elements: too large"));
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("unknown dtype ", message.header.dtype()));
  }
  // The division keeps a huge num_elements from wrapping around.
  if (!fits || payload_bytes % element_bytes != 0 ||
      payload_bytes / element_bytes != num_elements) {
    return absl::InvalidArgumentError(absl::StrCat(
        "payload of ", payload_bytes, " bytes where the header says ",
        num_elements, " elements of ", element_bytes, " bytes"));
  }
  return message;
}

}  // namespace psring
