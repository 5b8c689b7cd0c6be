#include "ps/shard_server.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/cluster/membership.h"
#include "common/model/job_plan.h"
#include "ps/directory_probe.h"
#include "spdlog/spdlog.h"

namespace psring {
namespace {

using proto::WireHeader;

constexpr absl::Duration kTick = absl::Milliseconds(500);
constexpr int kMessagesAtOnce = 64;

// Of a worker's piece; worker -1: of all workers'.
SpanArgs ArgsOf(int worker, int64_t step, const Piece& piece) {
  return {.step = step,
          .bytes = piece.range.size() * static_cast<int64_t>(sizeof(float)),
          .bucket = piece.bucket,
          .peer = worker,
          .peer_role = "worker"};
}

}  // namespace

ShardServer::ShardServer(Socket& socket, Doorbell& doorbell,
                         const ShardServerOptions& options,
                         const Layout& layout, Shard& shard)
    : socket_(socket),
      doorbell_(doorbell),
      options_(options),
      layout_(layout),
      shard_(shard),
      spec_(options_.job.spec()),
      num_workers_(options_.job.workers_size()),
      bsp_(spec_.sync() == proto::BSP),
      pieces_(layout, shard.range()),
      replies_(socket, options_.job),
      rule_(spec_, num_workers_, layout, pieces_, shard),
      late_gradients_(num_workers_, 0),
      last_message_(num_workers_, absl::Now()),
      peers_(socket.endpoint()) {
  const StepGate gate(spec_.sync(), spec_.staleness(), num_workers_,
                      FirstExchange(spec_), spec_.backup_workers());
  for (int i = 0; i < pieces_.size(); ++i) {
    states_.push_back({i, pieces_[i], gate, std::vector<Push>(num_workers_)});
    const int last_slot = FirstExchange(spec_) > 0 ? shard.num_slots() : 0;
    for (int slot = 0; slot <= last_slot; ++slot) {
      missing_init_.insert({slot, i});
    }
  }
}

absl::Status ShardServer::Run(const Cancellation& stop) {
  host_.emplace(options_.host_workers, options_.shard, pieces_.buckets());
  absl::Time next_check = absl::Now() + kTick;
  Socket* const sockets[] = {&socket_};
  const int fds[] = {stop.fd(), doorbell_.fd()};
  while (true) {
    TimelineSpan idle(options_.track, "idle");
    if (absl::Status s = Wait(sockets, fds, next_check); !s.ok()) return s;
    idle.End();
    if (!stop.status().ok()) return absl::OkStatus();
    if (absl::Status s = HandleMessages(); !s.ok()) return s;
    doorbell_.Clear();
    host_->Poll([this](int worker, int bucket, int64_t step) {
      return OnArenaPush(worker, bucket, step);
    });
    host_->RingAnswered();
    if (!failure_.ok()) return failure_;
    const absl::Time now = absl::Now();
    if (now < next_check) continue;
    next_check = now + kTick;
    if (absl::Status late = CheckDeadlines(now); !late.ok()) return late;
  }
}

// A few at a time, so that nobody can keep it from the doorbell and the clock.
absl::Status ShardServer::HandleMessages() {
  for (int i = 0; i < kMessagesAtOnce; ++i) {
    auto frames = socket_.TryReceive();
    if (!frames.ok()) return frames.status();
    if (!frames->has_value()) return absl::OkStatus();
    const std::string peer((**frames)[0].view());
    if (!peers_.Hears(peer)) continue;
    auto message = ParseData(*std::move(*frames), /*at_router=*/true);
    const absl::Status handled =
        message.ok() ? Handle(*std::move(message)) : message.status();
    if (!handled.ok()) peers_.Drop(peer, handled);
  }
  return absl::OkStatus();
}

// A worker of this host has pushed its gradients of a bucket.
bool ShardServer::OnArenaPush(int worker, int bucket, int64_t step) {
  last_message_[worker] = absl::Now();
  TimelineSpan span(
      options_.track, "receive",
      {.step = step, .bucket = bucket, .peer = worker, .peer_role = "worker"});
  for (int index : pieces_.of_bucket(bucket)) {
    PieceState& state = states_[index];
    Push push;
    push.gradient = host_->gradients(worker, state.piece.range.begin);
    push.in_arena = true;
    absl::Status status = Accept(state, worker, step, std::move(push));
    if (status.ok()) continue;
    ++malformed_pushes_;
    spdlog::warn("hears {} no more: {}", Describe(options_.job.workers(worker)),
                 std::string(status.message()));
    return false;
  }
  return true;
}

absl::Status ShardServer::Handle(DataMessage message) {
  const WireHeader& header = message.header;
  if (header.job_epoch() != options_.job.job_epoch()) {
    return absl::InvalidArgumentError("a message of another job");
  }
  if (header.sender() >= static_cast<uint32_t>(num_workers_)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "worker ", header.sender(), " of a job of ", num_workers_));
  }
  last_message_[header.sender()] = absl::Now();
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

absl::StatusOr<ShardServer::PieceState*> ShardServer::FindPiece(
    const WireHeader& header, WireHeader::DType dtype) {
  auto index = pieces_.Find(header, dtype);
  if (!index.ok()) return index.status();
  return &states_[*index];
}

absl::Status ShardServer::OnInit(const DataMessage& message) {
  const WireHeader& header = message.header;
  auto state = FindPiece(header);
  if (!state.ok()) return state.status();
  const int slot = static_cast<int>(header.slot());
  if (header.sender() != 0 || slot < 0 || slot > shard_.num_slots()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "first state of slot ", slot, " from worker ", header.sender()));
  }
  if (missing_init_.erase({slot, (*state)->index}) == 0) {
    return absl::OkStatus();
  }
  shard_.Set(slot, (*state)->piece.range, message.payload.data());
  if (!initialised()) return absl::OkStatus();
  for (const DataMessage& pull : std::exchange(parked_pulls_, {})) {
    if (absl::Status s = OnPull(pull); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status ShardServer::OnPull(const DataMessage& message) {
  auto state = FindPiece(message.header);
  if (!state.ok()) return state.status();
  if (!initialised()) {
    DataMessage parked;
    parked.peer = message.peer;
    parked.header = message.header;
    parked_pulls_.push_back(std::move(parked));
    return absl::OkStatus();
  }
  const int worker = static_cast<int>(message.header.sender());
  if (options_.replay == nullptr) {
    TakePull(**state, worker, message.peer);
    return absl::OkStatus();
  }
  Push pull;
  pull.peer = message.peer;
  return HoldBack(**state, {worker, kPullTurn}, std::move(pull));
}

// Parameters leave at the state that others' updates have brought about.
void ShardServer::TakePull(PieceState& state, int worker,
                           const std::string& peer) {
  if (options_.record != nullptr) {
    failure_.Update(options_.record->Append(state.index, {worker, kPullTurn}));
  }
  ReplyParameters(state, peer, worker, -1);
}

absl::Status ShardServer::OnPush(DataMessage message) {
  const GradientCodec* codec = options_.codec;
  auto found =
      FindPiece(message.header,
                codec == nullptr ? WireHeader::FLOAT32 : WireHeader::ENCODED);
  if (!found.ok()) return found.status();
  TimelineSpan span(options_.track, "receive",
                    ArgsOf(static_cast<int>(message.header.sender()),
                           message.header.step(), (*found)->piece));
  Push push;
  push.peer = std::move(message.peer);
  if (codec == nullptr) {
    push.payload = std::move(message.payload);
  } else {
    const Range range = (*found)->piece.range;
    push.payload = Frame::OfSize(range.size() * sizeof(float));
    if (absl::Status s =
            codec->Decode(range, message.payload.view(), push.payload.data());
        !s.ok()) {
      return s;
    }
  }
  push.gradient = push.payload.data();
  return Accept(**found, static_cast<int>(message.header.sender()),
                message.header.step(), std::move(push));
}

absl::Status ShardServer::Accept(PieceState& state, int worker, int64_t step,
                                 Push push) {
  if (!initialised()) {
    return absl::FailedPreconditionError("a push before the first parameters");
  }
  if (options_.replay == nullptr || step < state.gate.clock(worker)) {
    return Take(state, worker, step, std::move(push));
  }
  return HoldBack(state, {worker, step}, std::move(push));
}

absl::Status ShardServer::HoldBack(PieceState& state, UpdateTurn turn,
                                   Push push) {
  absl::Status held = options_.replay->Hold(state.index, turn, std::move(push));
  if (!held.ok()) return held;
  StartWaiting(state);
  failure_.Update(TakeRecorded(state));
  return absl::OkStatus();
}

// Takes what has been held back, as far as the recording goes on with it.
absl::Status ShardServer::TakeRecorded(PieceState& state) {
  while (true) {
    auto next = options_.replay->TakeNext(state.index);
    if (!next.ok()) return next.status();
    if (!next->has_value()) return absl::OkStatus();
    const UpdateTurn turn = (*next)->turn;
    state.waiting_since = absl::InfiniteFuture();
    if (turn.step == kPullTurn) {
      TakePull(state, turn.worker, (*next)->push.peer);
    } else {
      absl::Status taken =
          Take(state, turn.worker, turn.step, std::move((*next)->push));
      if (!taken.ok()) return taken;
    }
    if (state.gate.anyone_waiting()) StartWaiting(state);
    if (options_.replay->holds_any(state.index)) StartWaiting(state);
  }
}

void ShardServer::StartWaiting(PieceState& state) {
  state.waiting_since = std::min(state.waiting_since, absl::Now());
}

absl::Status ShardServer::Take(PieceState& state, int worker, int64_t step,
                               Push push) {
  const StepGate::Verdict verdict = state.gate.OnPush(worker, step);
  const bool taken = verdict == StepGate::Verdict::kAccept ||
                     verdict == StepGate::Verdict::kLate;
  if (taken && options_.record != nullptr) {
    failure_.Update(options_.record->Append(state.index, {worker, step}));
  }
  switch (verdict) {
    case StepGate::Verdict::kTooEarly:
      return absl::InvalidArgumentError(
          absl::StrCat("worker ", worker, " pushes step ", step, " of bucket ",
                       state.piece.bucket, " out of turn"));
    case StepGate::Verdict::kRepeat:
      // It has counted; if its answer has gone, it may have been lost. Nothing
      // is lost in an arena.
      if (!state.gate.waiting(worker) && !push.in_arena) {
        ReplyParameters(state, push.peer, worker, step);
      }
      return absl::OkStatus();
    case StepGate::Verdict::kLate:
      push.payload = Frame();
      state.pushes[worker] = std::move(push);
      AnswerLate(state, worker);
      return absl::OkStatus();
    case StepGate::Verdict::kAccept:
      break;
  }
  if (options_.on_step && step > step_) options_.on_step(step_ = step);
  state.pushes[worker] = std::move(push);
  StartWaiting(state);
  if (!bsp_) ApplyOne(state, worker, step);
  ReleaseWorkers(state);
  return absl::OkStatus();
}

void ShardServer::ReleaseWorkers(PieceState& state) {
  while (true) {
    const std::vector<int> released = state.gate.Release();
    if (released.empty()) return;
    if (bsp_) ApplyStep(state, released);
    for (int w : released) Answer(state, w, /*in_place=*/bsp_);
    for (int w : state.gate.ReleaseLate()) AnswerLate(state, w);
    // Whoever stays behind has been waiting since now at the latest.
    state.waiting_since =
        state.gate.anyone_waiting() ? absl::Now() : absl::InfiniteFuture();
  }
}

void ShardServer::ApplyOne(PieceState& state, int worker, int64_t step) {
  TimelineSpan span(options_.track, "update",
                    ArgsOf(worker, step, state.piece));
  Push& push = state.pushes[worker];
  rule_.ApplyOne(state.index, step, {worker, push.gradient});
  push.payload = Frame();
}

// These workers' gradients close the step. They are released by it, so those of
// this host get their parameters in the same pass.
void ShardServer::ApplyStep(PieceState& state,
                            const std::vector<int>& workers) {
  std::vector<UpdateRule::Contribution> contributions;
  std::vector<float*> copies;
  for (int w : workers) {
    contributions.push_back({w, state.pushes[w].gradient});
    if (!state.pushes[w].in_arena) continue;
    copies.push_back(host_->parameters(w, state.piece.range.begin));
  }
  const int64_t step = state.gate.clock(workers[0]) - 1;
  TimelineSpan span(options_.track, "update", ArgsOf(-1, step, state.piece));
  rule_.ApplyMean(state.index, step, contributions, copies);
  span.End();
  for (int w : workers) state.pushes[w].payload = Frame();
}

void ShardServer::AnswerLate(PieceState& state, int worker) {
  ++late_gradients_[worker];
  state.pushes[worker].payload = Frame();
  Answer(state, worker, /*in_place=*/false);
}

// The worker that waits gets the parameters: into its arena, where nobody uses
// them until all of its answers are there, or by message. `in_place`: they are
// in its arena already.
void ShardServer::Answer(PieceState& state, int worker, bool in_place) {
  TimelineSpan span(options_.track, "answer",
                    ArgsOf(worker, state.gate.clock(worker) - 1, state.piece));
  const Push& push = state.pushes[worker];
  if (!push.in_arena) {
    ReplyParameters(state, push.peer, worker, state.gate.clock(worker) - 1);
    return;
  }
  rule_.OnRead(state.index, worker);
  const Range range = state.piece.range;
  if (!in_place) {
    std::memcpy(host_->parameters(worker, range.begin),
                shard_.parameters(range.begin), range.size() * sizeof(float));
  }
  host_->Answer(worker, state.gate.next_step(worker));
}

void ShardServer::ReplyParameters(PieceState& state, const std::string& peer,
                                  int worker, int64_t step) {
  rule_.OnRead(state.index, worker);
  const float* data = shard_.parameters(state.piece.range.begin);
  const size_t bytes = state.piece.range.size() * sizeof(float);
  // In bsp these parameters change only when every worker has pushed the next
  // step, and a worker pushes only when all its answers are there: they can be
  // sent from where they lie. Otherwise others may change them at once.
  replies_.Parameters(
      peer, state.piece, step, state.gate.next_step(worker),
      bsp_ && spec_.backup_workers() == 0
          ? Frame::Borrow(data, bytes)
          : Frame::Copy({reinterpret_cast<const char*>(data), bytes}));
}

absl::Status ShardServer::OnProbeDirectory(const DataMessage& message) {
  replies_.Done(message.peer,
                ProbeDirectory(std::string(message.payload.view())));
  return absl::OkStatus();
}

absl::Status ShardServer::OnSave(const DataMessage& message) {
  if (!initialised()) {
    return absl::FailedPreconditionError("SAVE before the first parameters");
  }
  replies_.Done(message.peer,
                shard_.Save(std::string(message.payload.view()), layout_));
  return absl::OkStatus();
}

// Whom the workers that wait for an answer wait for.
std::optional<UpdateTurn> ShardServer::AwaitedOf(
    const PieceState& state) const {
  if (options_.replay != nullptr && options_.replay->holds_any(state.index)) {
    return options_.replay->awaited(state.index);
  }
  const std::vector<int> workers = state.gate.Awaited();
  if (workers.empty()) return std::nullopt;
  return UpdateTurn{workers.front(), state.gate.awaited_step()};
}

absl::Status ShardServer::CheckDeadlines(absl::Time now) const {
  for (const PieceState& state : states_) {
    if (now - state.waiting_since <= options_.step_timeout) continue;
    const std::optional<UpdateTurn> awaited = AwaitedOf(state);
    if (!awaited.has_value()) {  // workers skip steps that nobody has closed
      return absl::InternalError(absl::StrCat(
          "all workers have left out step ", state.gate.awaited_step(),
          " of bucket ", state.piece.bucket));
    }
    const int worker = awaited->worker;
    return absl::DeadlineExceededError(absl::StrCat(
        Describe(options_.job.workers(worker)),
        awaited->step == kPullTurn
            ? " has not asked for parameters"
            : absl::StrCat(" has not pushed step ", awaited->step),
        ", bucket ", state.piece.bucket, " within ",
        absl::FormatDuration(options_.step_timeout), "; its last message came ",
        absl::FormatDuration(
            absl::Trunc(now - last_message_[worker], absl::Milliseconds(100))),
        " ago"));
  }
  return absl::OkStatus();
}

}  // namespace psring
