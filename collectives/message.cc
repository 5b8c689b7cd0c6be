#include "collectives/message.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "collectives/call.h"
#include "common/printable.h"

namespace psring {
namespace {

using proto::CollectiveHeader;

absl::Status CheckKey(const proto::CollectiveKey& key, int size) {
  if (key.name().empty() || key.name().size() > kMaxNameBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a name of ", key.name().size(), " bytes"));
  }
  if (key.set_size() < 2 || key.set_size() > static_cast<uint32_t>(size)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a set of ", key.set_size(), " of ", size, " ranks"));
  }
  return absl::OkStatus();
}

absl::Status CheckOffset(const CollectiveHeader& header) {
  if (header.round() >= kNumRounds || header.offset() < 0 ||
      header.offset() > kMaxCollectiveBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("round ", header.round(), ", offset ", header.offset()));
  }
  return absl::OkStatus();
}

absl::Status CheckChunk(const CollectiveHeader& header, int64_t payload_bytes) {
  const bool shared = header.slot_number() > 0;
  const int64_t bytes = shared ? header.bytes() : payload_bytes;
  const int64_t most = shared ? kSharedChunkBytes : kChunkBytes;
  if (bytes < 1 || bytes > most || (shared && payload_bytes > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a chunk of ", bytes, " bytes"));
  }
  return CheckOffset(header);
}

absl::Status CheckCallMessage(const CollectiveHeader& header,
                              int64_t payload_bytes, int size) {
  const proto::CollectiveCall& call = header.call();
  const int set_size = static_cast<int>(header.key().set_size());
  if (absl::Status s = CheckCall(call, set_size); !s.ok()) return s;
  if (call.root() < 0 || call.root() >= size) {
    return absl::InvalidArgumentError(absl::StrCat("root ", call.root()));
  }
  if (header.bytes() < 0 || header.bytes() > kMaxCollectiveBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("a call with ", header.bytes(), " bytes"));
  }
  const bool shared = header.slot_number() > 0;
  const bool eager = payload_bytes > 0;
  if ((eager &&
       (payload_bytes != header.bytes() || payload_bytes > kEagerBytes)) ||
      (shared && (eager || header.bytes() > kSharedChunkBytes))) {
    return absl::InvalidArgumentError(absl::StrCat(
        payload_bytes, " bytes come with a call of ", header.bytes()));
  }
  return absl::OkStatus();
}

absl::Status CheckAnswer(const CollectiveHeader& header, int size) {
  if (header.waits_size() > kMaxWaits) {
    return absl::InvalidArgumentError(
        absl::StrCat("an answer of ", header.waits_size(), " waits"));
  }
  for (const proto::CollectiveWait& wait : header.waits()) {
    if (absl::Status s = CheckKey(wait.key(), size); !s.ok()) return s;
  }
  if (header.steps_size() > kMaxWaits) {
    return absl::InvalidArgumentError(
        absl::StrCat("an answer of ", header.steps_size(), " steps"));
  }
  for (const proto::CollectiveStep& step : header.steps()) {
    if (step.model().size() <= kMaxNameBytes && step.step() >= 0) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("step ", step.step(), " of a model whose name has ",
                     step.model().size(), " bytes"));
  }
  return absl::OkStatus();
}

absl::Status CheckJoined(const CollectiveHeader& header, int size) {
  if (header.kind() == CollectiveHeader::JOINED) return absl::OkStatus();
  if (header.sender() == 0 && header.last() >= 0 && header.last() < size) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("rank ", header.sender(), " says that rank ", header.last(),
                   " was the last to join"));
}

absl::Status CheckKind(const CollectiveHeader& header, int64_t payload_bytes,
                       int size) {
  switch (header.kind()) {
    case CollectiveHeader::CALL:
      return CheckCallMessage(header, payload_bytes, size);
    case CollectiveHeader::CHUNK:
      return CheckChunk(header, payload_bytes);
    case CollectiveHeader::ACK:
      return CheckOffset(header);
    case CollectiveHeader::FAIL:
      if (header.text().empty() || header.text().size() > kMaxTextBytes ||
          header.code() < 1 || header.code() > 16) {
        return absl::InvalidArgumentError(
            absl::StrCat("a failure of code ", header.code(), " with ",
                         header.text().size(), " bytes of text"));
      }
      return absl::OkStatus();
    case CollectiveHeader::QUESTION:
      if (header.order().size() <= kMaxNameBytes) return absl::OkStatus();
      return absl::InvalidArgumentError(
          absl::StrCat("an order's name of ", header.order().size(), " bytes"));
    case CollectiveHeader::ANSWER:
      return CheckAnswer(header, size);
    case CollectiveHeader::JOINED:
    case CollectiveHeader::EVERYBODY_JOINED:
      return CheckJoined(header, size);
    case CollectiveHeader::OFFER:
    case CollectiveHeader::ACCEPT:
    case CollectiveHeader::MAILBOX:
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("unknown kind ", header.kind()));
  }
}

absl::Status CheckMessage(const CollectiveHeader& header, int64_t payload_bytes,
                          const Addressee& here) {
  if (header.job_epoch() != here.job_epoch) {
    return absl::InvalidArgumentError("a message of another job");
  }
  if (header.sender() >= static_cast<uint32_t>(here.size) ||
      header.sender() == static_cast<uint32_t>(here.rank)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message from rank ", header.sender()));
  }
  const bool carries = header.kind() == CollectiveHeader::CALL ||
                       header.kind() == CollectiveHeader::CHUNK;
  if (!carries && (payload_bytes > 0 || header.slot_number() > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kind ", header.kind(), " with ", payload_bytes, " bytes of payload"));
  }
  if (header.kind() < CollectiveHeader::JOINED) {  // it is about an operation
    if (absl::Status s = CheckKey(header.key(), here.size); !s.ok()) return s;
  }
  return CheckKind(header, payload_bytes, here.size);
}

// Whether `text` has "rank 3", and not as a part of "rank 31".
bool NamesRank(absl::string_view text, uint32_t rank) {
  const std::string name = absl::StrCat("rank ", rank);
  for (size_t at = text.find(name); at != text.npos;
       at = text.find(name, at + 1)) {
    const absl::string_view rest = text.substr(at + name.size());
    if (rest.empty() || !absl::ascii_isdigit(rest.front())) return true;
  }
  return false;
}

// No real header takes more. A field that is not known takes many times its
// bytes on the wire.
size_t MostMemory(const CollectiveHeader& header, int size) {
  constexpr size_t kCountBytes = 2 * sizeof(int64_t);  // a vector's spare room
  if (header.kind() == CollectiveHeader::ANSWER) return 32 << 10;
  return (8 << 10) + kCountBytes * static_cast<size_t>(size);
}

// Others say of many calls what this rank keeps until it calls the same.
absl::Status CheckMemory(const CollectiveHeader& header, int size) {
  const size_t memory = header.SpaceUsedLong();
  const size_t most = MostMemory(header, size);
  if (memory <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a header of kind ", header.kind(), " that takes ", memory,
                   " bytes of memory, of at most ", most));
}

}  // namespace

SocketOptions CollectiveSocketOptions(std::string peer_key) {
  SocketOptions options;
  options.peer_key = std::move(peer_key);
  options.max_frame_bytes = kChunkBytes;
  options.unreachable_after = kUnreachableAfter;
  options.linger = absl::Seconds(2);
  return options;
}

absl::StatusOr<CollectiveMessage> ParseCollective(Frames frames,
                                                  const Addressee& here) {
  const int proven_rank = ProvenRank(frames);
  return ParseCollective(std::move(frames), here, proven_rank);
}

absl::StatusOr<CollectiveMessage> ParseCollective(Frames frames,
                                                  const Addressee& here,
                                                  int proven_rank) {
  if (frames.size() != 3) {
    return absl::InvalidArgumentError(
        absl::StrCat(frames.size(), " frames where 3 make a message"));
  }
  CollectiveMessage message;
  message.peer = std::string(frames[0].view());
  if (!message.header.ParseFromArray(frames[1].data(),
                                     static_cast<int>(frames[1].size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("a header of ", frames[1].size(),
                     " bytes that is not a CollectiveHeader"));
  }
  if (absl::Status s = CheckMemory(message.header, here.size); !s.ok()) {
    return s;
  }
  if (absl::Status s = CheckSender(proven_rank, message.header.sender());
      !s.ok()) {
    return s;
  }
  message.payload = std::move(frames[2]);
  if (absl::Status s = CheckMessage(
          message.header, static_cast<int64_t>(message.payload.size()), here);
      !s.ok()) {
    return s;
  }
  return message;
}

absl::Status FailureIn(const proto::CollectiveHeader& fail) {
  const std::string text = Printable(fail.text());
  const std::string who = NamesRank(text, fail.sender())
                              ? ""
                              : absl::StrCat("rank ", fail.sender(), " says: ");
  return absl::Status(static_cast<absl::StatusCode>(fail.code()),
                      absl::StrCat(who, text));
}

}  // namespace psring
