#include "ps/replay.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace psring {

Replay::Replay(std::vector<std::vector<UpdateTurn>> turns, int num_workers)
    : pieces_(turns.size()) {
  for (size_t p = 0; p < turns.size(); ++p) {
    pieces_[p].turns = std::move(turns[p]);
    pieces_[p].held.resize(num_workers);
  }
}

absl::Status Replay::Hold(int piece, UpdateTurn turn, Push push) {
  PieceOrder& order = pieces_[piece];
  std::optional<Held>& held = order.held[turn.worker];
  if (held.has_value()) {
    return absl::AlreadyExistsError(
        absl::StrCat("worker ", turn.worker, " pushes step ", turn.step,
                     " while its step ", held->step, " is held"));
  }
  held = Held{turn.step, std::move(push)};
  ++order.num_held;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<Replay::Next>> Replay::TakeNext(int piece) {
  PieceOrder& order = pieces_[piece];
  const std::optional<UpdateTurn> turn = awaited(piece);
  if (!turn.has_value()) {
    if (order.num_held == 0) return std::nullopt;
    return absl::FailedPreconditionError(
        "--replay: a gradient has come after the end of the recording: this "
        "run differs from the one that was recorded");
  }
  std::optional<Held>& held = order.held[turn->worker];
  if (!held.has_value()) return std::nullopt;
  if (held->step != turn->step) {
    return absl::FailedPreconditionError(
        absl::StrCat("--replay: worker ", turn->worker, " pushes step ",
                     held->step, " where step ", turn->step,
                     " was recorded: this run differs from that one"));
  }
  Next next = {*turn, std::move(held->push)};
  held.reset();
  --order.num_held;
  ++order.next;
  return next;
}

std::optional<UpdateTurn> Replay::awaited(int piece) const {
  const PieceOrder& order = pieces_[piece];
  if (order.next == order.turns.size()) return std::nullopt;
  return order.turns[order.next];
}

}  // namespace psring
