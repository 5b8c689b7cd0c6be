// The data plane's messages: common/net/frame.h, and which piece of a shard
// they name.
#include <utility>

#include "common/model/layout.h"
#include "common/net/frame.h"
#include "protos/wire.pb.h"
#include "ps/piece_table.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

using proto::WireHeader;

Layout SomeLayout() {
  proto::TensorShape tensor;
  tensor.set_name("w");
  tensor.add_shape(100000);
  auto layout = Layout::Create({tensor}, 1 << 20);
  Require(layout.ok(), "the layout is right");
  return *std::move(layout);
}

Frames FramesOf(bool at_router, const std::string& header,
                const std::string& payload) {
  Frames frames;
  if (at_router) frames.push_back(Frame::Copy("peer"));
  frames.push_back(Frame::Copy(header));
  frames.push_back(Frame::Copy(payload));
  return frames;
}

// Whatever its number of frames, as a stranger sends them.
Frames AnyFrames(Bytes input) {
  Frames frames;
  while (!input.empty()) frames.push_back(Frame::Copy(input.Text()));
  return frames;
}

void CheckMessage(const DataMessage& message, bool at_router) {
  const WireHeader& header = message.header;
  Require(header.kind() != WireHeader::KIND_UNSPECIFIED, "its kind is known");
  Require(message.payload.size() <= static_cast<size_t>(kMaxPayloadBytes),
          "its payload is not too large");
  const uint64_t unit = header.dtype() == WireHeader::FLOAT32 ? 4 : 1;
  Require(header.dtype() == WireHeader::ENCODED ||
              header.num_elements() * unit == message.payload.size(),
          "its payload has the size that the header gives it");
  const auto again = ParseData(FramesOf(at_router, header.SerializeAsString(),
                                        std::string(message.payload.view())),
                               at_router);
  Require(again.ok(), "what was read can be sent and read again");
  Require(again->header.SerializeAsString() == header.SerializeAsString() &&
              again->payload.view() == message.payload.view(),
          "it is the same then");
}

// Where a sender's key proves its rank, its messages are accepted as without a
// key if they name that rank, and never if they name another.
void CheckSenders(Frames& frames, bool accepted, uint32_t sender) {
  for (const int proven : {0, 1, 3, static_cast<int>(sender & INT32_MAX)}) {
    Frames copy;
    for (Frame& frame : frames) copy.push_back(frame.Share());
    const auto message = ParseData(std::move(copy), true, proven);
    if (!message.ok()) RequireReason(message.status());
    Require(
        message.ok() == (accepted && static_cast<uint32_t>(proven) == sender),
        "who has a key speaks as itself");
  }
}

void CheckPiece(const DataMessage& message) {
  static const Layout layout = SomeLayout();
  static const PieceTable pieces(layout, {{0, layout.num_elements()}});
  for (const auto dtype : {WireHeader::FLOAT32, WireHeader::ENCODED}) {
    const auto piece = pieces.Find(message.header, dtype);
    if (!piece.ok()) {
      RequireReason(piece.status());
      continue;
    }
    const Range range = pieces[*piece].range;
    Require(message.header.kind() == WireHeader::PULL ||
                message.header.num_elements() ==
                    static_cast<uint64_t>(range.size()),
            "a push fills its piece");
  }
}

}  // namespace

std::vector<std::string> Seeds() {
  WireHeader header;
  header.set_kind(WireHeader::PUSH);
  header.set_job_epoch(0x1234567890abcdef);
  header.set_sender(3);
  header.set_step(812);
  header.set_dtype(WireHeader::FLOAT32);
  header.set_num_elements(2);
  header.add_rates(0.1);
  std::vector<std::string> seeds;
  const auto add = [&](int kind, const std::string& payload) {
    seeds.push_back(Input()
                        .Byte(kind)
                        .Text(header.SerializeAsString())
                        .Text(payload)
                        .bytes());
  };
  add(0, "12345678");
  header.set_kind(WireHeader::PULL);
  header.clear_rates();
  header.set_num_elements(0);
  add(1, "");
  header.set_kind(WireHeader::SEGMENT);
  header.set_dtype(WireHeader::ENCODED);
  header.set_num_elements(16);
  header.set_sequence(7);
  header.set_hop(2);
  add(1, std::string(32, '\1'));
  header.set_kind(WireHeader::SAVE);
  header.set_dtype(WireHeader::BYTES);
  header.set_num_elements(4);
  add(2, "/tmp");
  return seeds;
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  const int kind = input.Below(3);
  const bool at_router = kind != 0;
  Frames frames;
  if (kind == 2) {
    frames = fuzz::AnyFrames(input);
  } else {
    const std::string header = input.Text();
    frames = fuzz::FramesOf(at_router, header, input.Text());
  }
  Frames copy;
  for (Frame& frame : frames) copy.push_back(frame.Share());
  const auto message = ParseData(std::move(copy), at_router);
  if (at_router) {
    fuzz::CheckSenders(frames, message.ok(),
                       message.ok() ? message->header.sender() : 0);
  }
  if (message.ok()) {
    fuzz::CheckMessage(*message, at_router);
    fuzz::CheckPiece(*message);
  } else {
    fuzz::RequireReason(message.status());
  }
  return 0;
}
