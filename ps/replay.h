// Holds gradients back until their turn in a recorded order. One thread's own.
//
// Every piece follows its own order. That suffices: pieces share nothing but
// the workers, and a worker goes on when all of its answers are there.
#ifndef PSRING_PS_REPLAY_H_
#define PSRING_PS_REPLAY_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ps/push.h"
#include "ps/update_log.h"

namespace psring {

class Replay {
 public:
  // turns[p]: those of piece p.
  Replay(std::vector<std::vector<UpdateTurn>> turns, int num_workers);

  // A gradient has come. ALREADY_EXISTS when this worker's last one is still
  // held.
  absl::Status Hold(int piece, UpdateTurn turn, Push push);

  struct Next {
    UpdateTurn turn;
    Push push;
  };
  // The gradient whose turn it is, if it has come; each once.
  // FAILED_PRECONDITION when a gradient has come that was not recorded so.
  absl::StatusOr<std::optional<Next>> TakeNext(int piece);

  bool holds_any(int piece) const { return pieces_[piece].num_held > 0; }
  // Whose turn it is; nothing at the recording's end.
  std::optional<UpdateTurn> awaited(int piece) const;

 private:
  struct Held {
    int64_t step = 0;
    Push push;
  };
  struct PieceOrder {
    std::vector<UpdateTurn> turns;
    size_t next = 0;
    std::vector<std::optional<Held>> held;  // by worker
    int num_held = 0;
  };

  std::vector<PieceOrder> pieces_;
};

}  // namespace psring

#endif  // PSRING_PS_REPLAY_H_
