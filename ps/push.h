// How a worker's gradient of a piece came to a shard, and so where its answer
// goes.
#ifndef PSRING_PS_PUSH_H_
#define PSRING_PS_PUSH_H_

#include <string>

#include "absl/container/inlined_vector.h"
#include "common/net/socket.h"

namespace psring {

struct Push {
  std::string peer;                // by message: whom to answer
  Frame payload;                   // by message: the gradient, decoded
  const void* gradient = nullptr;  // where it lies
  // Of each group, where the job takes rates from its workers.
  absl::InlinedVector<double, 4> rates;
  bool in_arena = false;
  bool in_turn = false;  // a replay has held it back until its turn
};

}  // namespace psring

#endif  // PSRING_PS_PUSH_H_
