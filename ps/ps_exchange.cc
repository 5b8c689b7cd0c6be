#include "ps/ps_exchange.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/optim/job_plan.h"
#include "common/optim/sync_policy.h"
#include "spdlog/spdlog.h"

namespace psring {

using proto::WireHeader;

namespace {

constexpr int kNoWindow = std::numeric_limits<int>::max();

// Buckets that come closer together than this wait for nothing but the window.
constexpr absl::Duration kPatience = absl::Milliseconds(2);

}  // namespace

absl::StatusOr<std::unique_ptr<PsExchange>> PsExchange::Create(
    Context& context, const Cancellation& cancellation, Member& member,
    const proto::Welcome& job, FlatModel& model, Track* track) {
  std::unique_ptr<PsExchange> exchange(
      new PsExchange(cancellation, member, job, model, track));
  exchange->step_ = FirstExchange(job.spec());
  auto codec = CodecOf(job.spec(), model.layout);
  if (!codec.ok()) return codec.status();
  if (codec->has_value()) exchange->codec_.emplace(**std::move(codec));
  for (const ShardPlace& place : MapShards(model.layout, job)) {
    auto socket = Socket::Connect(context, place.endpoint, DataSocketOptions());
    if (!socket.ok()) return socket.status();
    exchange->AddShard(place, *std::move(socket));
  }
  return exchange;
}

// A shard has the pieces of a bucket one after the other.
void PsExchange::AddShard(const ShardPlace& place,
                          std::unique_ptr<Socket> socket) {
  ShardPeer shard;
  shard.place = place;
  shard.socket = std::move(socket);
  shard.pieces = PiecesOfShard(model_.layout, place.range, kPieceElements);
  for (size_t i = 0; i < shard.pieces.size(); ++i) {
    std::vector<BucketPart>& parts = parts_of_[shard.pieces[i].bucket];
    if (parts.empty() || parts.back().shard != shards_.size()) {
      parts.push_back({shards_.size(), i, i});
    }
    parts.back().end = i + 1;
  }
  sockets_.push_back(shard.socket.get());
  shards_.push_back(std::move(shard));
}

WireHeader PsExchange::HeaderOf(WireHeader::Kind kind,
                                const Piece& piece) const {
  WireHeader header;
  header.set_kind(kind);
  header.set_job_epoch(job_.job_epoch());
  header.set_sender(static_cast<uint32_t>(job_.rank()));
  header.set_step(step_);
  header.set_bucket(static_cast<uint32_t>(piece.bucket));
  header.set_offset(static_cast<uint64_t>(piece.range.begin));
  header.set_num_elements(static_cast<uint64_t>(piece.range.size()));
  header.set_dtype(WireHeader::FLOAT32);
  return header;
}

SpanArgs PsExchange::ArgsOf(const ShardPeer& shard) const {
  return {
      .step = step_, .bytes = 0, .peer = shard.place.server, .peer_role = "ps"};
}

absl::Status PsExchange::SendInit(ShardPeer& shard, int slot,
                                  const FlatBuffer& values) {
  for (const Piece& piece : shard.pieces) {
    DataMessage message;
    message.header = HeaderOf(WireHeader::INIT, piece);
    message.header.set_slot(static_cast<uint32_t>(slot));
    message.payload = Frame::Copy(
        {reinterpret_cast<const char*>(values.data() + piece.range.begin),
         piece.range.size() * sizeof(float)});
    if (absl::Status s = SendData(*shard.socket, std::move(message)); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

absl::Status PsExchange::Join(std::vector<FlatBuffer> slots,
                              ParametersArrived arrived, Time deadline) {
  arrived_ = std::move(arrived);
  const bool first = job_.rank() == 0;
  for (ShardPeer& shard : shards_) {
    for (size_t slot = 0; first && slot <= slots.size(); ++slot) {
      const FlatBuffer& values =
          slot == 0 ? model_.parameters : slots[slot - 1];
      if (absl::Status s = SendInit(shard, static_cast<int>(slot), values);
          !s.ok()) {
        return s;
      }
    }
  }
  if (absl::Status s = PullAll("the first parameters", deadline); !s.ok()) {
    return s;
  }
  FindHostShards();
  return absl::OkStatus();
}

// A shard that has answered has attached before, where it could. Both sides
// have to reach each other.
void PsExchange::FindHostShards() {
  num_by_message_ = static_cast<int>(shards_.size());
  if (model_.arena == nullptr) return;
  std::vector<int> shards_of(job_.servers_size(), 0);
  for (size_t i = 0; i < shards_.size() && i < WorkerArena::kMaxShards; ++i) {
    const int server = shards_[i].place.server;
    const int index = shards_of[server]++;
    const proto::SharedMemory& memory = job_.servers(server).shared_memory();
    ShardSignals& signals = model_.arena->shard(static_cast<int>(i));
    if (signals.attached.load(std::memory_order_acquire) == 0 ||
        index >= memory.doorbell_fds_size() || !ShmArena::Map(memory).ok()) {
      continue;
    }
    auto button =
        DoorbellButton::Open(memory.pid(), memory.doorbell_fds(index));
    if (!button.ok()) continue;
    shards_[i].button = *std::move(button);
    shards_[i].signals = &signals;
    signals.used.store(1, std::memory_order_release);
    --num_by_message_;
  }
  spdlog::info("{} of {} shards share this host's memory",
               static_cast<int>(shards_.size()) - num_by_message_,
               shards_.size());
}

absl::Status PsExchange::PullAll(const std::string& what, Time deadline) {
  awaited_step_ = -1;
  for (ShardPeer& shard : shards_) {
    for (const Piece& piece : shard.pieces) {
      DataMessage message;
      message.header = HeaderOf(WireHeader::PULL, piece);
      message.header.set_num_elements(0);
      if (absl::Status s = SendData(*shard.socket, std::move(message));
          !s.ok()) {
        return s;
      }
    }
    shard.answers_due = static_cast<int>(shard.pieces.size());
  }
  return Await(what, deadline);
}

// Nobody is in a step between the two gathers, so all pull the same.
absl::Status PsExchange::Synchronise(Time deadline) {
  const std::string name =
      absl::StrCat("synchronise ", job_.model_id(), " ", gathers_++);
  if (auto all = member_.Gather(name, "", deadline); !all.ok()) {
    return all.status();
  }
  const proto::JobSpec& spec = job_.spec();
  if (PolicyOf(spec).barrier && spec.backup_workers() == 0) {
    return absl::OkStatus();
  }
  if (absl::Status s = PullAll("all parameters", deadline); !s.ok()) return s;
  return member_.Gather(name + " end", "", deadline).status();
}

absl::Status PsExchange::Submit(int bucket) {
  if (model_.arena != nullptr) {
    std::copy(model_.rates.begin(), model_.rates.end(), model_.arena->rates());
    model_.arena->pushed(bucket).store(step_ + 1, std::memory_order_release);
  }
  for (const BucketPart& part : parts_of_[bucket]) {
    ShardPeer& shard = shards_[part.shard];
    if (shard.signals == nullptr) continue;
    shard.answers_awaited += static_cast<int64_t>(part.end - part.begin);
    shard.button->Ring();
  }
  if (num_by_message_ == 0) return absl::OkStatus();
  const Time now = Now();
  const bool computing = now - last_submit_ > kPatience;
  last_submit_ = now;
  for (size_t i = 0; computing && i < shards_.size(); ++i) {
    if (absl::Status s = SendPushes(shards_[i], kNoWindow); !s.ok()) return s;
  }
  for (const BucketPart& part : parts_of_[bucket]) {
    ShardPeer& shard = shards_[part.shard];
    if (shard.signals != nullptr) continue;
    shard.unsent.insert(shard.unsent.end(), shard.pieces.begin() + part.begin,
                        shard.pieces.begin() + part.end);
    if (absl::Status s = SendPushes(shard, kWindowPieces); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status PsExchange::SendPushes(ShardPeer& shard, int window) {
  if (shard.unsent.empty() || shard.answers_due >= window) {
    return absl::OkStatus();
  }
  TimelineSpan span(track_, "send", ArgsOf(shard));
  while (!shard.unsent.empty() && shard.answers_due < window) {
    const Piece piece = shard.unsent.front();
    shard.unsent.pop_front();
    const float* values = model_.gradients.data() + piece.range.begin;
    DataMessage message;
    message.header = HeaderOf(WireHeader::PUSH, piece);
    for (double rate : model_.rates) message.header.add_rates(rate);
    if (codec_.has_value()) {
      message.header.set_dtype(WireHeader::ENCODED);
      message.payload =
          Frame::OfSize(codec_->EncodedBytes(piece.range, values));
      codec_->Encode(piece.range, values, message.payload.data());
    } else {
      message.payload =
          Frame::Borrow(values, piece.range.size() * sizeof(float));
    }
    gradient_bytes_ += static_cast<int64_t>(message.payload.size());
    span.args().bytes += static_cast<int64_t>(message.payload.size());
    if (absl::Status s = SendData(*shard.socket, std::move(message)); !s.ok()) {
      return s;
    }
    ++shard.answers_due;
  }
  return absl::OkStatus();
}

absl::Status PsExchange::Finish(Time deadline) {
  awaited_step_ = step_;
  next_step_ = std::max(next_step_, step_ + 1);
  if (absl::Status s = Await(absl::StrCat("step ", step_), deadline); !s.ok()) {
    return s;
  }
  for (const ShardPeer& shard : shards_) {
    if (shard.signals == nullptr) continue;
    next_step_ = std::max(
        next_step_, shard.signals->next_step.load(std::memory_order_acquire));
  }
  step_ = next_step_;
  return absl::OkStatus();
}

absl::Status PsExchange::Await(const std::string& what, Time deadline) {
  std::vector<int> fds = {cancellation_.fd()};
  if (model_.arena != nullptr) fds.push_back(model_.arena->doorbell().fd());
  std::vector<bool> told(shards_.size(), arrived_ == nullptr);
  TimelineSpan span(track_, "await",
                    {.step = awaited_step_, .peer_role = "ps"});
  while (true) {
    if (model_.arena != nullptr) model_.arena->doorbell().Clear();
    int64_t due = 0;
    for (size_t i = 0; i < shards_.size(); ++i) {
      ShardPeer& shard = shards_[i];
      if (shard.answers_due > 0) {
        if (absl::Status s = ReceiveFrom(shard); !s.ok()) return s;
      }
      if (!shard.unsent.empty()) {
        if (absl::Status s = SendPushes(shard, kWindowPieces); !s.ok()) {
          return s;
        }
      }
      if (shard.due() < 0) {
        return absl::InternalError(
            absl::StrCat(Describe(job_.servers(shard.place.server)),
                         " has answered more than was pushed"));
      }
      if (!told[i] && shard.due() == 0) {
        told[i] = true;
        arrived_(shard.place.range);
      }
      due += shard.due();
      // The last one to be named is the one that was waited for longest.
      if (shard.due() > 0) span.args().peer = shard.place.server;
    }
    if (due == 0) return absl::OkStatus();
    if (Now() > deadline) return Late(what);
    if (absl::Status s = Wait(sockets_, fds, deadline); !s.ok()) return s;
    if (absl::Status s = cancellation_.status(); !s.ok()) return s;
  }
}

absl::Status PsExchange::Late(const std::string& what) const {
  std::vector<std::string> silent;
  for (const ShardPeer& shard : shards_) {
    if (shard.due() == 0) continue;
    silent.push_back(absl::StrCat(Describe(job_.servers(shard.place.server)),
                                  " (", shard.due(), " pieces)"));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "no answer in time for ", what, " from ", absl::StrJoin(silent, ", ")));
}

absl::Status PsExchange::ReceiveFrom(ShardPeer& shard) {
  TimelineSpan span(track_, "receive", ArgsOf(shard));
  while (shard.answers_due > 0) {
    auto frames = shard.socket->TryReceive();
    if (!frames.ok()) return frames.status();
    if (!frames->has_value()) {
      if (span.args().bytes == 0) span.Drop();
      return absl::OkStatus();
    }
    auto message = ParseData(*std::move(*frames), /*at_router=*/false);
    if (message.ok()) {
      span.args().bytes += static_cast<int64_t>(message->payload.size());
    }
    const absl::Status status =
        message.ok() ? OnMessage(shard, *message) : message.status();
    if (!status.ok()) {
      return absl::Status(
          status.code(),
          absl::StrCat(Describe(job_.servers(shard.place.server)), ": ",
                       std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

absl::Status PsExchange::OnMessage(ShardPeer& shard,
                                   const DataMessage& message) {
  const WireHeader& header = message.header;
  if (header.job_epoch() != job_.job_epoch()) {
    return absl::InvalidArgumentError("sent a message of another job");
  }
  if (header.kind() == WireHeader::DONE) {
    --shard.answers_due;
    if (message.payload.size() > 0) {
      refusal_.Update(absl::FailedPreconditionError(
          absl::StrCat(Describe(job_.servers(shard.place.server)), ": ",
                       message.payload.view())));
    }
    return absl::OkStatus();
  }
  if (header.kind() == WireHeader::SAVED) return OnSaved(shard, message);
  const int64_t begin = static_cast<int64_t>(header.offset());
  const int64_t size = static_cast<int64_t>(header.num_elements());
  if (header.kind() != WireHeader::PARAMS ||
      header.dtype() != WireHeader::FLOAT32 || header.step() != awaited_step_ ||
      begin < shard.place.range.begin || begin > shard.place.range.end ||
      size > shard.place.range.end - begin) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sent ", WireHeader::Kind_Name(header.kind()), " of step ",
        header.step(), ", ", size, " elements from ", begin,
        ", where parameters of step ", awaited_step_, " were due"));
  }
  std::memcpy(model_.parameters.data() + begin, message.payload.data(),
              message.payload.size());
  next_step_ = std::max(next_step_, header.next_step());
  --shard.answers_due;
  return absl::OkStatus();
}

absl::Status PsExchange::OnSaved(ShardPeer& shard, const DataMessage& message) {
  proto::SavedState saved;
  const absl::string_view bytes = message.payload.view();
  if (!saved.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError("sent a SAVED that cannot be read");
  }
  saved_.MergeFrom(saved);
  --shard.answers_due;
  return absl::OkStatus();
}

absl::Status PsExchange::SendToAll(WireHeader::Kind kind,
                                   const std::string& text, Time deadline) {
  refusal_ = absl::OkStatus();
  for (ShardPeer& shard : shards_) {
    DataMessage message;
    message.header = HeaderOf(kind, Piece());
    message.header.set_dtype(WireHeader::BYTES);
    message.header.set_num_elements(text.size());
    message.payload = Frame::Copy(text);
    if (absl::Status s = SendData(*shard.socket, std::move(message)); !s.ok()) {
      return s;
    }
    ++shard.answers_due;
  }
  // Of all, whatever one says: answers must not come into the next step.
  if (absl::Status s = Await(text, deadline); !s.ok()) return s;
  return refusal_;
}

absl::StatusOr<proto::SavedState> PsExchange::SaveState(
    const std::string& directory, Time deadline) {
  saved_.Clear();
  if (absl::Status s = SendToAll(WireHeader::SAVE, directory, deadline);
      !s.ok()) {
    return s;
  }
  return saved_;
}

absl::Status PsExchange::CheckSaveDirectory(const std::string& directory,
                                            Time deadline) {
  return SendToAll(WireHeader::PROBE_DIR, directory, deadline);
}

Traffic PsExchange::traffic() const {
  Traffic traffic{.sent = 0, .received = 0, .gradients_sent = gradient_bytes_};
  for (const Socket* socket : sockets_) {
    traffic.sent += socket->bytes_sent();
    traffic.received += socket->bytes_received();
  }
  return traffic;
}

}  // namespace psring
