#include "ring/segment_inbox.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

using proto::WireHeader;

// A peer that has done its part may be some collectives ahead.
constexpr uint64_t kMaxAhead = 64;
// Of which none may be due: some, so that nobody keeps a collective from its
// deadline.
constexpr int kMessagesAtOnce = 64;

absl::Status CheckHeader(const WireHeader& header, uint64_t job_epoch,
                         uint64_t sequence) {
  if (header.kind() != WireHeader::SEGMENT ||
      (header.dtype() != WireHeader::FLOAT32 &&
       header.dtype() != WireHeader::ENCODED)) {
    return absl::InvalidArgumentError("not a segment of floats");
  }
  if (header.offset() > uint64_t{1} << 40) {
    return absl::InvalidArgumentError("an offset beyond any model");
  }
  if (header.job_epoch() != job_epoch) {
    return absl::InvalidArgumentError("a message of another job");
  }
  if (header.sequence() < sequence ||
      header.sequence() > sequence + kMaxAhead) {
    return absl::InvalidArgumentError(absl::StrCat(
        "collective ", header.sequence(), ", but ", sequence, " is under way"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SegmentInbox>> SegmentInbox::Create(
    Context& context, const std::string& address) {
  auto socket = Socket::Bind(context, address, 0, DataSocketOptions());
  if (!socket.ok()) return socket.status();
  return std::unique_ptr<SegmentInbox>(new SegmentInbox(*std::move(socket)));
}

absl::StatusOr<std::optional<DataMessage>> SegmentInbox::TryNext(
    uint64_t sequence) {
  const auto due = std::find_if(
      early_.begin(), early_.end(),
      [&](const DataMessage& m) { return m.header.sequence() == sequence; });
  if (due != early_.end()) {
    DataMessage message = std::move(*due);
    early_.erase(due);
    return std::optional<DataMessage>(std::move(message));
  }
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    auto frames = socket_->TryReceive();
    if (!frames.ok()) return frames.status();
    if (!frames->has_value()) return std::optional<DataMessage>();
    const std::string peer((**frames)[0].view());
    if (!peers_.Hears(peer)) continue;
    const int rank = ProvenRank(**frames);
    auto message = ParseData(*std::move(*frames), /*at_router=*/true, rank);
    const absl::Status status =
        message.ok() ? CheckHeader(message->header, job_epoch_, sequence)
                     : message.status();
    if (!status.ok()) {
      Drop(peer, status, rank);
    } else if (message->header.sequence() == sequence) {
      return std::optional<DataMessage>(*std::move(message));
    } else {
      early_.push_back(*std::move(message));
    }
  }
  return std::optional<DataMessage>();
}

}  // namespace psring
