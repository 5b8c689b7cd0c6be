#include "common/net/link.h"

namespace psring {
namespace {

void Put(uint64_t number, char* bytes) {
  for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(number >> (8 * i));
}

uint64_t Get(const char* bytes) {
  uint64_t number = 0;
  for (int i = 0; i < 8; ++i) {
    number |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  }
  return number;
}

}  // namespace

std::array<char, kLinkHeaderBytes> Encode(const LinkHeader& header) {
  std::array<char, kLinkHeaderBytes> bytes;
  bytes[0] = static_cast<char>(header.kind);
  Put(header.number, &bytes[1]);
  Put(header.received, &bytes[9]);
  return bytes;
}

std::optional<LinkHeader> ParseLinkHeader(absl::string_view bytes) {
  if (bytes.size() != kLinkHeaderBytes || bytes[0] < 1 || bytes[0] > 4) {
    return std::nullopt;
  }
  LinkHeader header{static_cast<LinkHeader::Kind>(bytes[0]), Get(&bytes[1]),
                    Get(&bytes[9])};
  const bool numbered = header.kind == LinkHeader::Kind::kMessage;
  if (numbered != (header.number > 0)) return std::nullopt;
  return header;
}

std::optional<Link::News> Link::OnHeader(const LinkHeader& header) {
  if (header.received > sent_) return std::nullopt;
  News news;
  if (header.received > heard_) {
    news.acknowledged = static_cast<size_t>(header.received - heard_);
    heard_ = header.received;
  }
  // One that has come before is a repeat. One that is too early shows that
  // others were lost; it will be repeated after them.
  news.deliver =
      header.kind == Kind::kMessage && header.number == received_ + 1;
  if (news.deliver) ++received_;
  return news;
}

}  // namespace psring
