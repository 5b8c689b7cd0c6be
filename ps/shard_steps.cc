#include "ps/shard_steps.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/host_groups.h"
#include "common/cluster/process_names.h"
#include "common/counted.h"
#include "common/optim/sync_policy.h"

namespace psring {

SpanArgs ArgsOf(int worker, int64_t step, const Piece& piece) {
  return {.step = step,
          .bytes = piece.range.size() * static_cast<int64_t>(sizeof(float)),
          .bucket = piece.bucket,
          .peer = worker,
          .peer_role = "worker"};
}

ShardSteps::ShardSteps(const ShardStepsParts& parts,
                       const ShardStepsOptions& options)
    : parts_(parts),
      options_(options),
      spec_(parts.job.spec()),
      barrier_(PolicyOf(spec_).barrier),
      gradients_pushed_(GradientsPushed(parts.job)),
      rule_(spec_, parts.job.workers_size(), parts.layout, parts.pieces,
            parts.shard),
      late_gradients_(parts.job.workers_size(), 0),
      last_push_(parts.job.workers_size(), Time::InfinitePast()) {
  const int num_workers = parts.job.workers_size();
  std::vector<int> silent;
  for (int w = 0; w < num_workers; ++w) {
    if (gradients_pushed_[w] == 0) silent.push_back(w);
  }
  for (int i = 0; i < parts.pieces.size(); ++i) {
    states_.push_back(
        {i, parts.pieces[i], MakeStepGate(spec_, num_workers, silent),
         std::vector<Push>(num_workers), std::vector<Time>(num_workers)});
  }
}

absl::Status ShardSteps::OnPush(int piece, int worker, int64_t step,
                                Push push) {
  PieceState& state = states_[piece];
  if (gradients_pushed_[worker] == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", worker, " pushes, whose gradients worker ",
                     HostGroupOf(parts_.job, worker).front(), " sums"));
  }
  if (options_.replay != nullptr && !push.in_turn &&
      step >= state.gate->clock(worker)) {
    return HoldBack(state, {worker, step}, std::move(push));
  }
  const StepGate::Decision decision = state.gate->OnPush(worker, step);
  if (decision.verdict == StepGate::Verdict::kTooEarly) {
    return absl::InvalidArgumentError(
        absl::StrCat("worker ", worker, " pushes step ", step, " of bucket ",
                     state.piece.bucket, " out of turn"));
  }
  if (decision.verdict == StepGate::Verdict::kRepeat) {
    // It has counted; if its answer has gone, it may have been lost. Nothing is
    // lost in an arena.
    if (!state.gate->waiting(worker) && !push.in_arena) {
      Answer(state, worker, push, step, state.gate->next_step(worker),
             /*in_place=*/false);
    }
    return absl::OkStatus();
  }
  if (options_.record != nullptr) {
    failure_.Update(options_.record->Append(state.index, {worker, step}));
  }
  if (options_.on_step && step > step_) options_.on_step(step_ = step);
  state.pushes[worker] = std::move(push);
  last_push_[worker] = Now();
  if (!barrier_) ApplyOne(state, worker, step);
  for (const std::vector<int>& workers : decision.released) {
    if (barrier_) ApplyStep(state, workers);
    for (int w : workers) {
      const int64_t next = state.gate->clock(w);
      Answer(state, w, state.pushes[w], next - 1, next, /*in_place=*/barrier_);
    }
  }
  for (int w : decision.late) {
    ++late_gradients_[w];
    state.pushes[w].payload = Frame();
    Answer(state, w, state.pushes[w], state.gate->clock(w) - 1,
           state.gate->next_step(w), /*in_place=*/false);
  }
  if (state.gate->waiting(worker)) state.waiting_since[worker] = Now();
  // Whoever stays behind a step that has closed waits for the next one.
  if (barrier_ && !decision.released.empty()) RestartWaits(state);
  return absl::OkStatus();
}

void ShardSteps::ReleaseFromThoseWhoLeft() {
  if (!options_.workers_left || barrier_ || options_.replay != nullptr) return;
  const std::vector<int> left = options_.workers_left();
  if (left.size() == num_left_) return;
  for (PieceState& state : states_) {
    for (size_t i = num_left_; i < left.size(); ++i) {
      for (int w : state.gate->OnWorkerLeft(left[i])) {
        const int64_t next = state.gate->clock(w);
        Answer(state, w, state.pushes[w], next - 1, next, /*in_place=*/false);
      }
    }
  }
  num_left_ = left.size();
}

absl::Status ShardSteps::OnPull(int piece, int worker,
                                const std::string& peer) {
  PieceState& state = states_[piece];
  Push pull;
  pull.peer = peer;
  if (options_.replay == nullptr) {
    TakePull(state, worker, pull);
    return absl::OkStatus();
  }
  return HoldBack(state, {worker, kPullTurn}, std::move(pull));
}

absl::Status ShardSteps::HoldBack(PieceState& state, UpdateTurn turn,
                                  Push push) {
  absl::Status held = options_.replay->Hold(state.index, turn, std::move(push));
  if (!held.ok()) return held;
  last_push_[turn.worker] = Now();
  state.held_since = std::min(state.held_since, Now());
  failure_.Update(TakeRecorded(state));
  return absl::OkStatus();
}

// Takes what has been held back, as far as the recording goes on with it.
absl::Status ShardSteps::TakeRecorded(PieceState& state) {
  while (true) {
    auto next = options_.replay->TakeNext(state.index);
    if (!next.ok()) return next.status();
    if (!next->has_value()) return absl::OkStatus();
    const UpdateTurn turn = (*next)->turn;
    RestartWaits(state);
    state.held_since = options_.replay->holds_any(state.index)
                           ? Now()
                           : Time::InfiniteFuture();
    if (turn.step == kPullTurn) {
      TakePull(state, turn.worker, (*next)->push);
    } else {
      Push& push = (*next)->push;
      push.in_turn = true;
      absl::Status taken =
          OnPush(state.index, turn.worker, turn.step, std::move(push));
      if (!taken.ok()) return taken;
    }
  }
}

void ShardSteps::RestartWaits(PieceState& state) {
  if (!state.gate->anyone_waiting()) return;
  std::fill(state.waiting_since.begin(), state.waiting_since.end(), Now());
}

Time ShardSteps::PieceState::longest_wait_since() const {
  Time since = held_since;
  for (size_t w = 0; w < waiting_since.size(); ++w) {
    if (gate->waiting(static_cast<int>(w))) {
      since = std::min(since, waiting_since[w]);
    }
  }
  return since;
}

// A pull has no gradient: it reads what others' updates have left.
void ShardSteps::TakePull(PieceState& state, int worker, const Push& pull) {
  if (options_.record != nullptr) {
    failure_.Update(options_.record->Append(state.index, {worker, kPullTurn}));
  }
  Answer(state, worker, pull, -1, state.gate->next_step(worker),
         /*in_place=*/false);
}

void ShardSteps::ApplyOne(PieceState& state, int worker, int64_t step) {
  TimelineSpan span(parts_.track, "update", ArgsOf(worker, step, state.piece));
  Push& push = state.pushes[worker];
  rule_.ApplyOne(state.index, step, {worker, push.gradient, push.rates});
  push.payload = Frame();
}

// These workers' gradients close the step. They are released by it, so those of
// this host get their parameters in the same pass.
void ShardSteps::ApplyStep(PieceState& state, const std::vector<int>& workers) {
  std::vector<UpdateRule::Contribution> contributions;
  std::vector<float*> copies;
  for (int w : workers) {
    contributions.push_back({w, state.pushes[w].gradient, state.pushes[w].rates,
                             gradients_pushed_[w]});
    if (!state.pushes[w].in_arena) continue;
    copies.push_back(parts_.host.parameters(w, state.piece.range.begin));
  }
  const int64_t step = state.gate->clock(workers[0]) - 1;
  TimelineSpan span(parts_.track, "update", ArgsOf(-1, step, state.piece));
  rule_.ApplyMean(state.index, step, contributions, copies);
  span.End();
  for (int w : workers) state.pushes[w].payload = Frame();
}

void ShardSteps::Answer(PieceState& state, int worker, const Push& push,
                        int64_t step, int64_t next_step, bool in_place) {
  TimelineSpan span(parts_.track, "answer", ArgsOf(worker, step, state.piece));
  rule_.OnRead(state.index, worker);
  const Range range = state.piece.range;
  const float* data = parts_.shard.parameters(range.begin);
  const size_t bytes = range.size() * sizeof(float);
  if (push.in_arena) {
    if (!in_place) {
      std::memcpy(parts_.host.parameters(worker, range.begin), data, bytes);
    }
    parts_.host.Answer(worker, state.piece.bucket, next_step);
    return;
  }
  // Behind a barrier these parameters change only when every worker has pushed
  // the next step, and a worker pushes only when all its answers are there:
  // they can be sent from where they lie. Otherwise others may change them at
  // once.
  parts_.replies.Parameters(
      push.peer, state.piece, step, next_step,
      TakesEveryGradient(spec_)
          ? Frame::Borrow(data, bytes, parts_.shard.memory())
          : Frame::Copy({reinterpret_cast<const char*>(data), bytes}));
}

// Whom the workers that wait for an answer wait for: of several the one that
// has pushed nothing for the longest time, or the shortest where a step closes
// without some.
std::optional<UpdateTurn> ShardSteps::AwaitedOf(const PieceState& state) const {
  if (options_.replay != nullptr && options_.replay->holds_any(state.index)) {
    return options_.replay->awaited(state.index);
  }
  const std::vector<int> workers = state.gate->Awaited();
  if (workers.empty()) return std::nullopt;
  const auto [longest, shortest] = std::minmax_element(
      workers.begin(), workers.end(),
      [this](int a, int b) { return last_push_[a] < last_push_[b]; });
  return UpdateTurn{spec_.backup_workers() > 0 ? *shortest : *longest,
                    state.gate->awaited_step()};
}

std::string ShardSteps::PushesForOf(int worker) const {
  if (gradients_pushed_[worker] < 2) return "";
  return absl::StrCat("; it pushes the sum of workers ",
                      ShortList(HostGroupOf(parts_.job, worker)));
}

absl::Status ShardSteps::CheckDeadlines(
    Time now, absl::Span<const Time> last_message) const {
  for (const PieceState& state : states_) {
    if (now - state.longest_wait_since() <= options_.step_timeout) continue;
    const std::optional<UpdateTurn> awaited = AwaitedOf(state);
    if (!awaited.has_value()) {  // workers skip steps that nobody has closed
      return absl::InternalError(absl::StrCat(
          "all workers have left out step ", state.gate->awaited_step(),
          " of bucket ", state.piece.bucket));
    }
    const int worker = awaited->worker;
    if (now - last_push_[worker] <= options_.step_timeout) continue;
    return absl::DeadlineExceededError(absl::StrCat(
        Describe(parts_.job.workers(worker)),
        awaited->step == kPullTurn
            ? " has not asked for parameters"
            : absl::StrCat(" has not pushed step ", awaited->step),
        ", bucket ", state.piece.bucket, " within ",
        absl::FormatDuration(options_.step_timeout), "; its last message came ",
        absl::FormatDuration(absl::Trunc(
            std::max(now - last_message[worker], absl::ZeroDuration()),
            absl::Milliseconds(100))),
        " ago", PushesForOf(worker)));
  }
  return absl::OkStatus();
}

}  // namespace psring
