#include "ps/ps_exchange.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
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
    FlatModel& model, Track* track) {
  std::unique_ptr<PsExchange> exchange(
      new PsExchange(cancellation, member, model, track));
  exchange->step_ = FirstExchange(member.job().spec());
  const auto compression = ParseCompression(member.job().spec().compress());
  if (!compression.ok()) return compression.status();
  if (!compression->none()) {
    exchange->codec_.emplace(*compression, model.layout);
  }
  for (const ShardPlace& place : MapShards(model.layout, member.job())) {
    auto socket = Socket::Connect(context, place.endpoint, DataSocketOptions());
    if (!socket.ok()) return socket.status();
    Link link;
    link.place = place;
    link.socket = *std::move(socket);
    link.pieces = PiecesOfShard(model.layout, place.range, kPieceElements);
    exchange->sockets_.push_back(link.socket.get());
    exchange->links_.push_back(std::move(link));
  }
  return exchange;
}

WireHeader PsExchange::HeaderOf(WireHeader::Kind kind,
                                const Piece& piece) const {
  WireHeader header;
  header.set_kind(kind);
  header.set_job_epoch(member_.job().job_epoch());
  header.set_sender(static_cast<uint32_t>(member_.job().rank()));
  header.set_step(step_);
  header.set_bucket(static_cast<uint32_t>(piece.bucket));
  header.set_offset(static_cast<uint64_t>(piece.range.begin));
  header.set_num_elements(static_cast<uint64_t>(piece.range.size()));
  header.set_dtype(WireHeader::FLOAT32);
  return header;
}

SpanArgs PsExchange::ArgsOf(const Link& link) const {
  return {
      .step = step_, .bytes = 0, .peer = link.place.server, .peer_role = "ps"};
}

absl::Status PsExchange::SendInit(Link& link, int slot,
                                  const FlatBuffer& values) {
  for (const Piece& piece : link.pieces) {
    DataMessage message;
    message.header = HeaderOf(WireHeader::INIT, piece);
    message.header.set_slot(static_cast<uint32_t>(slot));
    message.payload = Frame::Copy(
        {reinterpret_cast<const char*>(values.data() + piece.range.begin),
         piece.range.size() * sizeof(float)});
    if (absl::Status s = SendData(*link.socket, std::move(message)); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

absl::Status PsExchange::Join(std::vector<FlatBuffer> slots,
                              ParametersArrived arrived, absl::Time deadline) {
  arrived_ = std::move(arrived);
  const bool first = member_.job().rank() == 0;
  for (Link& link : links_) {
    for (size_t slot = 0; first && slot <= slots.size(); ++slot) {
      const FlatBuffer& values =
          slot == 0 ? model_.parameters : slots[slot - 1];
      if (absl::Status s = SendInit(link, static_cast<int>(slot), values);
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
  if (model_.arena == nullptr) return;
  const proto::Welcome& job = member_.job();
  std::vector<int> shards_of(job.servers_size(), 0);
  int found = 0;
  for (size_t i = 0; i < links_.size() && i < WorkerArena::kMaxShards; ++i) {
    const int server = links_[i].place.server;
    const int index = shards_of[server]++;
    const proto::SharedMemory& memory = job.servers(server).shared_memory();
    ShardSignals& signals = model_.arena->shard(static_cast<int>(i));
    if (signals.attached.load(std::memory_order_acquire) == 0 ||
        index >= memory.doorbell_fds_size() || !ShmArena::Map(memory).ok()) {
      continue;
    }
    auto button =
        DoorbellButton::Open(memory.pid(), memory.doorbell_fds(index));
    if (!button.ok()) continue;
    links_[i].button = *std::move(button);
    links_[i].signals = &signals;
    signals.used.store(1, std::memory_order_release);
    ++found;
  }
  spdlog::info("{} of {} shards share this host's memory", found,
               links_.size());
}

absl::Status PsExchange::PullAll(const std::string& what, absl::Time deadline) {
  awaited_step_ = -1;
  for (Link& link : links_) {
    for (const Piece& piece : link.pieces) {
      DataMessage message;
      message.header = HeaderOf(WireHeader::PULL, piece);
      message.header.set_num_elements(0);
      if (absl::Status s = SendData(*link.socket, std::move(message));
          !s.ok()) {
        return s;
      }
    }
    link.answers_due = static_cast<int>(link.pieces.size());
  }
  return Await(what, deadline);
}

// Nobody is in a step between the two gathers, so all pull the same.
absl::Status PsExchange::Synchronise(absl::Time deadline) {
  const std::string name = absl::StrCat("synchronise ", gathers_++);
  if (auto all = member_.Gather(name, "", deadline); !all.ok()) {
    return all.status();
  }
  const proto::JobSpec& spec = member_.job().spec();
  if (PolicyOf(spec).barrier && spec.backup_workers() == 0) {
    return absl::OkStatus();
  }
  if (absl::Status s = PullAll("all parameters", deadline); !s.ok()) return s;
  return member_.Gather(name + " end", "", deadline).status();
}

absl::Status PsExchange::Submit(int bucket) {
  if (model_.arena != nullptr) {
    model_.arena->pushed(bucket).store(step_ + 1, std::memory_order_release);
  }
  const absl::Time now = absl::Now();
  const bool computing = now - last_submit_ > kPatience;
  last_submit_ = now;
  for (Link& link : links_) {
    if (computing) {
      if (absl::Status s = SendPushes(link, kNoWindow); !s.ok()) return s;
    }
    int64_t in_arena = 0;
    for (const Piece& piece : link.pieces) {
      if (piece.bucket != bucket) continue;
      if (link.signals != nullptr) {
        ++in_arena;
      } else {
        link.unsent.push_back(piece);
      }
    }
    link.answers_awaited += in_arena;
    if (in_arena > 0) link.button->Ring();
    if (absl::Status s = SendPushes(link, kWindowPieces); !s.ok()) return s;
  }
  return absl::OkStatus();
}

Frame PsExchange::PayloadOf(const Piece& piece) const {
  const float* values = model_.gradients.data() + piece.range.begin;
  if (!codec_.has_value()) {
    return Frame::Borrow(values, piece.range.size() * sizeof(float));
  }
  Frame payload = Frame::OfSize(codec_->EncodedBytes(piece.range, values));
  codec_->Encode(piece.range, values, payload.data());
  return payload;
}

absl::Status PsExchange::SendPushes(Link& link, int window) {
  TimelineSpan span(track_, "send", ArgsOf(link));
  if (link.unsent.empty() || link.answers_due >= window) span.Drop();
  while (!link.unsent.empty() && link.answers_due < window) {
    const Piece piece = link.unsent.front();
    link.unsent.pop_front();
    DataMessage message;
    message.header = HeaderOf(WireHeader::PUSH, piece);
    if (codec_.has_value()) message.header.set_dtype(WireHeader::ENCODED);
    message.payload = PayloadOf(piece);
    gradient_bytes_ += static_cast<int64_t>(message.payload.size());
    span.args().bytes += static_cast<int64_t>(message.payload.size());
    if (absl::Status s = SendData(*link.socket, std::move(message)); !s.ok()) {
      return s;
    }
    ++link.answers_due;
  }
  return absl::OkStatus();
}

absl::Status PsExchange::Finish(absl::Time deadline) {
  awaited_step_ = step_;
  next_step_ = std::max(next_step_, step_ + 1);
  if (absl::Status s = Await(absl::StrCat("step ", step_), deadline); !s.ok()) {
    return s;
  }
  for (const Link& link : links_) {
    if (link.signals == nullptr) continue;
    next_step_ = std::max(
        next_step_, link.signals->next_step.load(std::memory_order_acquire));
  }
  step_ = next_step_;
  return absl::OkStatus();
}

absl::Status PsExchange::Await(const std::string& what, absl::Time deadline) {
  std::vector<int> fds = {cancellation_.fd()};
  if (model_.arena != nullptr) fds.push_back(model_.arena->doorbell().fd());
  std::vector<bool> told(links_.size(), arrived_ == nullptr);
  TimelineSpan span(track_, "await",
                    {.step = awaited_step_, .peer_role = "ps"});
  while (true) {
    if (model_.arena != nullptr) model_.arena->doorbell().Clear();
    int64_t due = 0;
    for (size_t i = 0; i < links_.size(); ++i) {
      Link& link = links_[i];
      if (link.answers_due > 0) {
        if (absl::Status s = ReceiveFrom(link); !s.ok()) return s;
      }
      if (absl::Status s = SendPushes(link, kWindowPieces); !s.ok()) return s;
      if (link.due() < 0) {
        return absl::InternalError(
            absl::StrCat(Describe(member_.job().servers(link.place.server)),
                         " has answered more than was pushed"));
      }
      if (!told[i] && link.due() == 0) {
        told[i] = true;
        arrived_(link.place.range);
      }
      due += link.due();
      // The last one to be named is the one that was waited for longest.
      if (link.due() > 0) span.args().peer = link.place.server;
    }
    if (due == 0) return absl::OkStatus();
    if (absl::Now() > deadline) return Late(what);
    if (absl::Status s = Wait(sockets_, fds, deadline); !s.ok()) return s;
    if (absl::Status s = cancellation_.status(); !s.ok()) return s;
  }
}

absl::Status PsExchange::Late(const std::string& what) const {
  std::vector<std::string> silent;
  for (const Link& link : links_) {
    if (link.due() == 0) continue;
    silent.push_back(
        absl::StrCat(Describe(member_.job().servers(link.place.server)), " (",
                     link.due(), " pieces)"));
  }
  return absl::DeadlineExceededError(absl::StrCat(
      "no answer in time for ", what, " from ", absl::StrJoin(silent, ", ")));
}

absl::Status PsExchange::ReceiveFrom(Link& link) {
  TimelineSpan span(track_, "receive", ArgsOf(link));
  while (link.answers_due > 0) {
    auto frames = link.socket->TryReceive();
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
        message.ok() ? OnMessage(link, *message) : message.status();
    if (!status.ok()) {
      return absl::Status(
          status.code(),
          absl::StrCat(Describe(member_.job().servers(link.place.server)), ": ",
                       std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

absl::Status PsExchange::OnMessage(Link& link, const DataMessage& message) {
  const WireHeader& header = message.header;
  if (header.job_epoch() != member_.job().job_epoch()) {
    return absl::InvalidArgumentError("sent a message of another job");
  }
  if (header.kind() == WireHeader::DONE) {
    --link.answers_due;
    return message.payload.size() == 0
               ? absl::OkStatus()
               : absl::FailedPreconditionError(message.payload.view());
  }
  const int64_t begin = static_cast<int64_t>(header.offset());
  const int64_t size = static_cast<int64_t>(header.num_elements());
  if (header.kind() != WireHeader::PARAMS ||
      header.dtype() != WireHeader::FLOAT32 || header.step() != awaited_step_ ||
      begin < link.place.range.begin || begin > link.place.range.end ||
      size > link.place.range.end - begin) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sent ", WireHeader::Kind_Name(header.kind()), " of step ",
        header.step(), ", ", size, " elements from ", begin,
        ", where parameters of step ", awaited_step_, " were due"));
  }
  std::memcpy(model_.parameters.data() + begin, message.payload.data(),
              message.payload.size());
  next_step_ = std::max(next_step_, header.next_step());
  --link.answers_due;
  return absl::OkStatus();
}

absl::Status PsExchange::SendToAll(WireHeader::Kind kind,
                                   const std::string& text,
                                   absl::Time deadline) {
  for (Link& link : links_) {
    DataMessage message;
    message.header = HeaderOf(kind, Piece());
    message.header.set_dtype(WireHeader::BYTES);
    message.header.set_num_elements(text.size());
    message.payload = Frame::Copy(text);
    if (absl::Status s = SendData(*link.socket, std::move(message)); !s.ok()) {
      return s;
    }
    ++link.answers_due;
  }
  return Await(text, deadline);
}

absl::Status PsExchange::SaveState(const std::string& directory,
                                   absl::Time deadline) {
  return SendToAll(WireHeader::SAVE, directory, deadline);
}

absl::Status PsExchange::CheckSaveDirectory(const std::string& directory,
                                            absl::Time deadline) {
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
