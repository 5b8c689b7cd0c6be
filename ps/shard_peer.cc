#include "ps/shard_peer.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/cluster/process_names.h"

namespace psring {
namespace {

constexpr int kMessagesAtOnce = 64;
// Of at most kPieceElements each: more than a fast link has under way.
constexpr int kFirstValuesAtOnce = 64;

}  // namespace

using proto::WireHeader;

ShardPeer::ShardPeer(const Worker& worker, const ShardPlace& place,
                     std::unique_ptr<Socket> socket)
    : worker_(worker),
      place_(place),
      socket_(std::move(socket)),
      pieces_(worker.model.layout, place.ranges),
      awaited_(pieces_.size(), false),
      due_of_bucket_(worker.model.layout.num_buckets()) {}

void ShardPeer::UseArena(ShardSignals& signals, WakeCount& pushes,
                         std::unique_ptr<DoorbellButton> button) {
  pushes_ = &pushes;
  button_ = std::move(button);
  signals_ = &signals;
  signals.used.store(1, std::memory_order_release);
}

std::string ShardPeer::Name() const {
  return Describe(worker_.job.servers(place_.server));
}

SpanArgs ShardPeer::Args() const {
  return {
      .step = last_step_, .bytes = 0, .peer = place_.server, .peer_role = "ps"};
}

WireHeader ShardPeer::HeaderOf(WireHeader::Kind kind,
                               const Piece& piece) const {
  WireHeader header;
  header.set_kind(kind);
  header.set_job_epoch(worker_.job.job_epoch());
  header.set_sender(static_cast<uint32_t>(worker_.job.rank()));
  header.set_bucket(static_cast<uint32_t>(piece.bucket));
  header.set_offset(static_cast<uint64_t>(piece.range.begin));
  header.set_num_elements(static_cast<uint64_t>(piece.range.size()));
  header.set_dtype(WireHeader::FLOAT32);
  return header;
}

absl::Status ShardPeer::SendInit(absl::Span<const FlatBuffer* const> state) {
  while (next_init_ < pieces_.size() &&
         socket_->undelivered() < kFirstValuesAtOnce) {
    const Piece& piece = pieces_[next_init_++];
    for (size_t slot = 0; slot < state.size(); ++slot) {
      const float* const values = state[slot]->data() + piece.range.begin;
      DataMessage message;
      message.header = HeaderOf(WireHeader::INIT, piece);
      message.header.set_slot(static_cast<uint32_t>(slot));
      message.payload = Frame::Copy({reinterpret_cast<const char*>(values),
                                     piece.range.size() * sizeof(float)});
      if (absl::Status s = SendData(*socket_, std::move(message)); !s.ok()) {
        return s;
      }
    }
  }
  return absl::OkStatus();
}

void ShardPeer::Pull(int slot, float* into) {
  awaited_step_ = -1;
  awaited_slot_ = slot;
  awaited_values_ = into;
  for (int i = 0; i < pieces_.size(); ++i) {
    unsent_.push_back(i);
    ++due_of_bucket_[pieces_[i].bucket];
  }
}

absl::Status ShardPeer::Ask(WireHeader::Kind kind, const std::string& text) {
  DataMessage message;
  message.header = HeaderOf(kind, Piece());
  message.header.set_dtype(WireHeader::BYTES);
  message.header.set_num_elements(text.size());
  message.header.set_sequence(++num_questions_);
  message.payload = Frame::Copy(text);
  reply_awaited_ = true;
  reply_ = proto::SavedState();
  return SendData(*socket_, std::move(message));
}

void ShardPeer::Push(int bucket, int64_t step) {
  awaited_step_ = last_step_ = step;
  awaited_slot_ = 0;
  awaited_values_ = worker_.model.parameters.data();
  const std::vector<int>& pieces = pieces_.of_bucket(bucket);
  if (signals_ == nullptr) {
    unsent_.insert(unsent_.end(), pieces.begin(), pieces.end());
    due_of_bucket_[bucket] += static_cast<int>(pieces.size());
  } else {
    answers_awaited_ += static_cast<int64_t>(pieces.size());
    if (pushes_->Add(1)) button_->Ring();
  }
}

absl::Status ShardPeer::SendReady(int window) {
  if (unsent_.empty() || num_awaited_ >= window) return absl::OkStatus();
  TimelineSpan span(worker_.track, "send", Args());
  while (!unsent_.empty() && num_awaited_ < window) {
    const int piece = unsent_.front();
    unsent_.pop_front();
    const int64_t before = gradient_bytes_;
    const absl::Status s =
        awaited_step_ < 0 ? SendPull(pieces_[piece]) : SendPush(pieces_[piece]);
    if (!s.ok()) return s;
    span.args().bytes += gradient_bytes_ - before;
    awaited_[piece] = true;
    ++num_awaited_;
  }
  return absl::OkStatus();
}

absl::Status ShardPeer::SendPull(const Piece& piece) {
  DataMessage message;
  message.header = HeaderOf(WireHeader::PULL, piece);
  message.header.set_num_elements(0);
  message.header.set_slot(static_cast<uint32_t>(awaited_slot_));
  return SendData(*socket_, std::move(message));
}

absl::Status ShardPeer::SendPush(const Piece& piece) {
  const float* values = worker_.model.gradients.data() + piece.range.begin;
  DataMessage message;
  message.header = HeaderOf(WireHeader::PUSH, piece);
  message.header.set_step(last_step_);
  for (double rate : worker_.model.rates) message.header.add_rates(rate);
  if (worker_.codec != nullptr) {
    message.header.set_dtype(WireHeader::ENCODED);
    message.payload =
        Frame::OfSize(worker_.codec->EncodedBytes(piece.range, values));
    worker_.codec->Encode(piece.range, values, message.payload.data());
  } else {
    message.payload = Frame::Borrow(values, piece.range.size() * sizeof(float),
                                    worker_.model.gradients.memory());
  }
  gradient_bytes_ += static_cast<int64_t>(message.payload.size());
  return SendData(*socket_, std::move(message));
}

// A few at a time: pushes and deadlines come between.
absl::Status ShardPeer::Receive() {
  TimelineSpan span(worker_.track, "receive", Args());
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    auto frames = socket_->TryReceive();
    if (!frames.ok()) return frames.status();
    if (!frames->has_value()) break;
    auto message = ParseData(*std::move(*frames), /*at_router=*/false);
    if (message.ok()) {
      span.args().bytes += static_cast<int64_t>(message->payload.size());
    }
    const absl::Status status =
        message.ok() ? OnMessage(*message) : message.status();
    if (!status.ok()) {
      return absl::Status(
          status.code(),
          absl::StrCat(Name(), ": ", std::string(status.message())));
    }
  }
  if (span.args().bytes == 0) span.Drop();
  return absl::OkStatus();
}

absl::Status ShardPeer::OnMessage(const DataMessage& message) {
  if (message.header.job_epoch() != worker_.job.job_epoch()) {
    return absl::InvalidArgumentError("sent a message of another job");
  }
  switch (message.header.kind()) {
    case WireHeader::PARAMS:
      return OnParameters(message);
    case WireHeader::DONE:
    case WireHeader::SAVED:
      return OnReply(message);
    default:
      return absl::InvalidArgumentError(
          absl::StrCat("sent ", WireHeader::Kind_Name(message.header.kind()),
                       ", which is not for a worker"));
  }
}

absl::Status ShardPeer::OnParameters(const DataMessage& message) {
  const auto piece = pieces_.Find(message.header, WireHeader::FLOAT32);
  if (!piece.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sent parameters of ", std::string(piece.status().message())));
  }
  const int64_t step = message.header.step();
  if (step > last_step_) {
    return absl::InvalidArgumentError(
        absl::StrCat("sent parameters of step ", step,
                     ", of which nothing has been pushed"));
  }
  // Of an earlier exchange, or once more: it has been taken.
  const auto slot = static_cast<int>(message.header.slot());
  if (step != awaited_step_ || slot != awaited_slot_ || !awaited_[*piece]) {
    return absl::OkStatus();
  }
  std::memcpy(awaited_values_ + pieces_[*piece].range.begin,
              message.payload.data(), message.payload.size());
  next_step_ = std::max(next_step_, message.header.next_step());
  awaited_[*piece] = false;
  --num_awaited_;
  --due_of_bucket_[pieces_[*piece].bucket];
  return absl::OkStatus();
}

absl::Status ShardPeer::OnReply(const DataMessage& message) {
  const absl::string_view text = message.payload.view();
  // One to a question that nobody waits for any more has come late.
  if (!reply_awaited_ || message.header.sequence() != num_questions_) {
    return absl::OkStatus();
  }
  const bool saves = message.header.kind() == WireHeader::SAVED;
  reply_awaited_ = saves && message.header.more();
  proto::SavedState saved;
  if (!saves && !text.empty()) {
    reply_ = absl::FailedPreconditionError(absl::StrCat(Name(), ": ", text));
  } else if (saved.ParseFromArray(text.data(), static_cast<int>(text.size()))) {
    reply_->MergeFrom(saved);
  } else {
    return absl::InvalidArgumentError("sent a SAVED that cannot be read");
  }
  return absl::OkStatus();
}

int64_t ShardPeer::due() const {
  int64_t due = num_awaited_ + static_cast<int64_t>(unsent_.size()) +
                (reply_awaited_ ? 1 : 0);
  if (signals_ != nullptr) {
    due += answers_awaited_ - signals_->answers.load(std::memory_order_acquire);
  }
  return due;
}

int64_t ShardPeer::next_step() const {
  if (signals_ == nullptr) return next_step_;
  return std::max(next_step_,
                  signals_->next_step.load(std::memory_order_acquire));
}

}  // namespace psring
