// The workers of one host, and how they keep step.
//
// In every collective each of them tells where its data lies and that it may be
// read (Enter), does its part on everybody's data, and waits until all have
// done theirs (Leave). Calls are numbered; what a call says lies in one of two
// places by the parity of its number: a member writes call i + 2 only when all
// have entered call i + 1, that is, when nobody looks at call i any more.
#ifndef PSRING_RING_LOCAL_GROUP_H_
#define PSRING_RING_LOCAL_GROUP_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/model/worker_arena.h"
#include "common/net/cancellation.h"
#include "common/trace/timeline.h"
#include "protos/cluster.pb.h"

namespace psring {

// One thread's own.
class LocalGroup {
 public:
  // `ranks`: the members, this rank among them, in the order in which they
  // count; arenas[i] is ranks[i]'s. All references outlive the group. `track`:
  // this thread's, or null.
  LocalGroup(const Cancellation& cancellation, const proto::Welcome& job,
             std::vector<int> ranks, std::vector<WorkerArena*> arenas,
             Track* track = nullptr);

  int size() const { return static_cast<int>(ranks_.size()); }
  Track* track() const { return track_; }
  // This process's place in the group.
  int self() const { return self_; }

  // From now on called about every 50 ms while this process waits for a member;
  // its error ends the wait.
  void WhileWaiting(std::function<absl::Status()> call) {
    while_waiting_ = std::move(call);
  }

  // Whether `data` lies in this process's arena, so that others can reach it.
  bool Shares(absl::Span<const float> data) const;

  // Begins a collective on `data`, which must be shared, or on this call's
  // window (`data` empty of meaning, `num_elements` in it). Blocks until every
  // member has entered. Errors: DEADLINE_EXCEEDED with who is missing, a
  // cancelled process, members that call with different sizes.
  absl::Status EnterShared(absl::Span<float> data, Time deadline);
  absl::Status EnterStaged(int64_t num_elements, Time deadline);

  // Where this process puts what the next EnterStaged brings.
  float* NextWindow() { return Window(self_, calls_ + 1); }
  // Member i's data of the call under way.
  float* data(int i) const { return data_[i]; }
  // What lies in member i's arena where `mine` lies in this process's.
  float* Counterpart(int i, float* mine) const {
    return arenas_[i]->floats() + (mine - arenas_[self_]->floats());
  }

  // Blocks until every member is here: nobody reads or writes this process's
  // data any more. A staged call needs none.
  absl::Status Leave(Time deadline);

 private:
  float* Window(int member, uint32_t call) const {
    return arenas_[member]->staging(static_cast<int>(call % 2));
  }
  absl::Status Enter(int64_t offset, int64_t num_elements, Time deadline);
  absl::Status FindData(int64_t num_elements);
  absl::Status AwaitAll(SharedCounter& (WorkerArena::*counter)(),
                        Time deadline);

  const Cancellation& cancellation_;
  const proto::Welcome& job_;
  const std::vector<int> ranks_;
  const std::vector<WorkerArena*> arenas_;
  Track* const track_;
  std::function<absl::Status()> while_waiting_;  // may be empty
  int self_ = 0;
  SpinPolicy policy_;
  uint32_t calls_ = 0;
  std::vector<float*> data_;
};

}  // namespace psring

#endif  // PSRING_RING_LOCAL_GROUP_H_
