// common/net/link.h: headers of any bytes, and conversations whose messages are
// lost, repeated and made up.
#include <deque>
#include <utility>
#include <vector>

#include "common/net/link.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

using Kind = LinkHeader::Kind;

absl::string_view View(const std::array<char, kLinkHeaderBytes>& bytes) {
  return {bytes.data(), bytes.size()};
}

void CheckHeader(const std::string& bytes) {
  const auto header = ParseLinkHeader(bytes);
  if (header) Require(View(Encode(*header)) == bytes, "a header is its bytes");
}

// One end of a conversation and what it has sent.
struct End {
  Link link;
  std::deque<LinkHeader> wire;  // to the other end
  uint64_t sent = 0;
  uint64_t delivered = 0;  // of the other's
};

void Say(End& from, Kind kind) { from.wire.push_back(from.link.Say(kind)); }

void Resend(End& from) {
  for (size_t i = 0; i < from.link.unacknowledged(); ++i) {
    from.wire.push_back(from.link.Again(i));
  }
}

void Hear(End& from, End& to) {
  if (from.wire.empty()) return;
  const LinkHeader header = from.wire.front();
  from.wire.pop_front();
  const size_t before = to.link.unacknowledged();
  const auto parsed = ParseLinkHeader(View(Encode(header)));
  Require(parsed.has_value(), "what a link says can be read");
  const auto news = to.link.OnHeader(*parsed);
  Require(news.has_value(), "an honest peer is believed");
  Require(before - to.link.unacknowledged() == news->acknowledged,
          "what is acknowledged need not be kept");
  if (news->deliver) {
    ++to.delivered;
    Require(header.number == to.delivered, "each message comes once, in order");
  }
  if (header.kind == Kind::kResume) {
    Say(to, Kind::kResumed);
    Resend(to);
  }
  if (header.kind == Kind::kResumed) Resend(to);
}

// The connection breaks, and is made anew: what was under way is lost.
void Break(End& a, End& b) {
  a.wire.clear();
  b.wire.clear();
  Say(a, Kind::kResume);
}

void Converse(Bytes input) {
  End a, b;
  while (!input.empty()) {
    const uint8_t what = input.Byte();
    End& from = (what & 1) != 0 ? a : b;
    End& to = (what & 1) != 0 ? b : a;
    switch (what >> 1 & 3) {
      case 0:
        from.wire.push_back(from.link.Next());
        ++from.sent;
        break;
      case 1:
        Say(from, Kind::kAck);
        break;
      case 2:
        Hear(from, to);
        break;
      default:
        Break(a, b);
    }
    if (a.wire.size() + b.wire.size() > 1000) break;
  }
  Break(a, b);
  while (!a.wire.empty() || !b.wire.empty()) {
    Hear(a, b);
    Hear(b, a);
  }
  Require(a.delivered == b.sent && b.delivered == a.sent,
          "in the end all has arrived");
}

// A peer that says anything.
void HearAnything(Bytes input) {
  Link link;
  uint64_t delivered = 0;
  while (!input.empty()) {
    if (input.Flag()) link.Next();
    LinkHeader header;
    header.kind = static_cast<Kind>(1 + input.Below(4));
    header.number = static_cast<uint64_t>(input.Integer());
    header.received = static_cast<uint64_t>(input.Integer());
    const size_t kept = link.unacknowledged();
    const auto news = link.OnHeader(header);
    if (!news) continue;
    Require(news->acknowledged <= kept, "only what was sent is acknowledged");
    if (news->deliver) Require(header.number == ++delivered, "in order");
  }
}

}  // namespace

std::vector<std::string> Seeds() {
  const auto header = Encode({Kind::kMessage, 7, 3});
  return {
      Input().Byte(0).Rest(View(header)).bytes(),
      Input().Byte(1).Rest({"\0\0\1\5\4\2\6\0\1\4\5\6\4\5\4\5", 16}).bytes(),
      Input()
          .Byte(2)
          .Byte(1)
          .Byte(0)
          .Integer(1)
          .Integer(1)
          .Byte(1)
          .Byte(2)
          .Integer(0)
          .Integer(1)
          .bytes(),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  psring::fuzz::Bytes input(data, size);
  switch (input.Below(3)) {
    case 0:
      psring::fuzz::CheckHeader(input.Rest());
      break;
    case 1:
      psring::fuzz::Converse(input);
      break;
    default:
      psring::fuzz::HearAnything(input);
  }
  return 0;
}
