// How collectives behave; see collectives.h.
#ifndef PSRING_COLLECTIVES_OPTIONS_H_
#define PSRING_COLLECTIVES_OPTIONS_H_

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace psring {

// A step of a model, which is no collective but waits for every rank, too.
struct ModelStep {
  std::string model;
  int64_t step = 0;
};

struct CollectivesOptions {
  // From its call on, an operation has so long until it fails.
  absl::Duration step_timeout = absl::Seconds(60);
  // After so long, and at twice each time, the log says whom the main thread
  // waits for. Infinite: somebody else does.
  absl::Duration long_wait = absl::InfiniteDuration();
  // The ranks that have left the job for good, asked now and then on the
  // collectives' thread, or on one that calls or waits: what still needs
  // their call fails. May be empty.
  std::function<std::vector<int>()> ranks_left = nullptr;
  // For ranks that wait in a collective for one that waits in a step. On the
  // same threads; both or none. The steps that this rank has been
  // waiting in for so long:
  std::function<std::vector<ModelStep>(absl::Duration)> steps_awaited = nullptr;
  // Whether the step still needs gradients of this rank:
  std::function<bool(const ModelStep&)> owes_step = nullptr;
  // With ranks of the same host: messages and chunks go through memory.
  bool shares_memory = false;
  // The one whose waits are held against other ranks' (see stall_check.h): the
  // thread that makes these options, where nothing else is said.
  std::thread::id main_thread = std::this_thread::get_id();
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_OPTIONS_H_
