#include "ps/shard_requests.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/cluster/process_names.h"
#include "common/log.h"
#include "common/optim/job_plan.h"
#include "common/optim/rates.h"
#include "common/state/directory_probe.h"

namespace psring {
namespace {

using proto::WireHeader;

// Where a checkpoint lies is worker 0's to say.
absl::Status CheckNamesDirectory(const WireHeader& header) {
  if (header.sender() == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat(WireHeader::Kind_Name(header.kind()), " from worker ",
                   header.sender(), ": worker 0 alone names directories"));
}

absl::Status TooEarly(absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, " before the first parameters"));
}

}  // namespace

ShardRequests::ShardRequests(const ShardStepsParts& parts,
                             const ShardStepsOptions& options,
                             const GradientCodec* codec, std::string endpoint)
    : parts_(parts),
      codec_(codec),
      num_rates_(NumRates(parts.job.spec())),
      steps_(parts, options),
      last_message_(parts.job.workers_size(), Now()),
      peers_(std::move(endpoint)) {
  // A script tells of its optimizer's state even where that is zero.
  const bool resumes = FirstExchange(parts.job.spec()) > 0 ||
                       parts.job.spec().rates_from_workers();
  const int last_slot = resumes ? parts.shard.num_slots() : 0;
  for (int i = 0; i < parts.pieces.size(); ++i) {
    for (int slot = 0; slot <= last_slot; ++slot) {
      missing_init_.insert({i, slot});
    }
  }
}

void ShardRequests::OnMessage(Frames frames) {
  const std::string peer(frames[0].view());
  if (!peers_.Hears(peer)) return;
  const int rank = ProvenRank(frames);
  auto message = ParseData(std::move(frames), /*at_router=*/true, rank);
  const absl::Status handled =
      message.ok() ? Handle(*std::move(message)) : message.status();
  if (!handled.ok()) peers_.Drop(peer, handled, rank);
}

bool ShardRequests::OnArenaPush(int worker, int bucket, int64_t step) {
  last_message_[worker] = Now();
  TimelineSpan span(
      parts_.track, "receive",
      {.step = step, .bucket = bucket, .peer = worker, .peer_role = "worker"});
  // Copied before they are checked: the worker could change them.
  const std::vector<double> rates(parts_.host.rates(worker),
                                  parts_.host.rates(worker) + num_rates_);
  absl::Status status =
      initialised() ? CheckRates(parts_.job.spec(), rates) : TooEarly("a push");
  for (int piece : parts_.pieces.of_bucket(bucket)) {
    if (!status.ok()) break;
    Push push;
    push.gradient =
        parts_.host.gradients(worker, parts_.pieces[piece].range.begin);
    push.in_arena = true;
    push.rates.assign(rates.begin(), rates.end());
    status = steps_.OnPush(piece, worker, step, std::move(push));
  }
  if (status.ok()) return true;
  ++malformed_pushes_;
  LogWarning("ignores $0 from now on: $1", Describe(parts_.job.workers(worker)),
             status.message());
  return false;
}

absl::Status ShardRequests::Handle(DataMessage message) {
  const WireHeader& header = message.header;
  if (header.job_epoch() != parts_.job.job_epoch()) {
    return absl::InvalidArgumentError("a message of another job");
  }
  if (header.sender() >= static_cast<uint32_t>(last_message_.size())) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", header.sender(), " of a job of ", last_message_.size()));
  }
  last_message_[header.sender()] = Now();
  switch (header.kind()) {
    case WireHeader::INIT:
      return OnInit(message);
    case WireHeader::PULL:
      return OnPull(message);
    case WireHeader::PUSH:
      return OnPush(std::move(message));
    case WireHeader::PROBE_DIR:
      return OnProbeDirectory(message);
    case WireHeader::SAVE:
      return OnSave(message);
    default:
      return absl::InvalidArgumentError(absl::StrCat(
          WireHeader::Kind_Name(header.kind()), " is not for a server"));
  }
}

bool ShardRequests::initialised(int piece) const {
  const auto next = missing_init_.lower_bound({piece, 0});
  return next == missing_init_.end() || next->first != piece;
}

absl::Status ShardRequests::OnInit(const DataMessage& message) {
  const WireHeader& header = message.header;
  const auto piece = parts_.pieces.Find(header, WireHeader::FLOAT32);
  if (!piece.ok()) return piece.status();
  const int slot = static_cast<int>(header.slot());
  if (header.sender() != 0 || slot < 0 || slot > parts_.shard.num_slots()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "first state of slot ", slot, " from worker ", header.sender()));
  }
  if (missing_init_.erase({*piece, slot}) == 0) return absl::OkStatus();
  parts_.shard.Set(slot, parts_.pieces[*piece].range, message.payload.data());
  if (!initialised(*piece)) return absl::OkStatus();
  const auto first = parked_pulls_.lower_bound({*piece, 0});
  auto pulled = first;
  for (; pulled != parked_pulls_.end() && pulled->first.first == *piece;
       ++pulled) {
    const auto& [of, peer] = *pulled;
    if (absl::Status s = steps_.OnPull(*piece, of.second, peer); !s.ok()) {
      peers_.Drop(peer, s, of.second);
    }
  }
  parked_pulls_.erase(first, pulled);
  return absl::OkStatus();
}

absl::Status ShardRequests::OnPull(const DataMessage& message) {
  const auto piece = parts_.pieces.Find(message.header, WireHeader::FLOAT32);
  if (!piece.ok()) return piece.status();
  const int worker = static_cast<int>(message.header.sender());
  if (message.header.slot() > 0) return OnPullState(*piece, message);
  if (initialised(*piece)) return steps_.OnPull(*piece, worker, message.peer);
  parked_pulls_[{*piece, worker}] = message.peer;
  return absl::OkStatus();
}

// As it is: between steps, when worker 0 asks.
absl::Status ShardRequests::OnPullState(int piece, const DataMessage& message) {
  const auto slot = static_cast<int64_t>(message.header.slot());
  if (message.header.sender() != 0 || slot > parts_.shard.num_slots()) {
    return absl::InvalidArgumentError(
        absl::StrCat("PULL of slot ", slot, " from worker ",
                     message.header.sender(), ": worker 0 alone asks for the ",
                     parts_.shard.num_slots(), " that there are"));
  }
  if (!initialised(piece)) return TooEarly("PULL of the optimizer's state");
  const Piece& of = parts_.pieces[piece];
  const float* values = parts_.shard.SlotsAt(of.range.begin)[slot - 1];
  parts_.replies.State(message.peer, of, static_cast<int>(slot),
                       Frame::Copy({reinterpret_cast<const char*>(values),
                                    of.range.size() * sizeof(float)}));
  return absl::OkStatus();
}

absl::Status ShardRequests::OnPush(DataMessage message) {
  if (!initialised()) return TooEarly("a push");
  const auto found = parts_.pieces.Find(
      message.header,
      codec_ == nullptr ? WireHeader::FLOAT32 : WireHeader::ENCODED);
  if (!found.ok()) return found.status();
  const Piece& piece = parts_.pieces[*found];
  const int worker = static_cast<int>(message.header.sender());
  const int64_t step = message.header.step();
  TimelineSpan span(parts_.track, "receive", ArgsOf(worker, step, piece));
  Push push;
  push.peer = std::move(message.peer);
  if (codec_ == nullptr) {
    push.payload = std::move(message.payload);
  } else {
    push.payload = Frame::OfSize(piece.range.size() * sizeof(float));
    if (absl::Status s = codec_->Decode(piece.range, message.payload.view(),
                                        push.payload.data());
        !s.ok()) {
      return s;
    }
  }
  push.gradient = push.payload.data();
  push.rates.assign(message.header.rates().begin(),
                    message.header.rates().end());
  if (absl::Status s = CheckRates(parts_.job.spec(), push.rates); !s.ok()) {
    return s;
  }
  return steps_.OnPush(*found, worker, step, std::move(push));
}

absl::Status ShardRequests::OnProbeDirectory(const DataMessage& message) {
  if (absl::Status s = CheckNamesDirectory(message.header); !s.ok()) return s;
  parts_.replies.Done(message.peer, message.header.sequence(),
                      ProbeFolderOf(std::string(message.payload.view())));
  return absl::OkStatus();
}

absl::Status ShardRequests::OnSave(const DataMessage& message) {
  if (absl::Status s = CheckNamesDirectory(message.header); !s.ok()) return s;
  if (!initialised()) return TooEarly("SAVE");
  const auto saved =
      parts_.shard.Save(std::string(message.payload.view()), parts_.layout);
  if (saved.ok()) {
    parts_.replies.Saved(message.peer, message.header.sequence(), *saved);
  } else {
    parts_.replies.Done(message.peer, message.header.sequence(),
                        saved.status());
  }
  return absl::OkStatus();
}

}  // namespace psring
