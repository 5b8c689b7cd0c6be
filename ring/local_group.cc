#include "ring/local_group.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/process_names.h"
#include "common/host_cores.h"

namespace psring {
namespace {

// How long a member sleeps before it looks at deadline and cancellation.
constexpr absl::Duration kSlice = absl::Milliseconds(50);

// With a core for everybody, a peer that has nothing else to do comes within
// the time that a megabyte takes: looking for some 100 us covers that and saves
// the kernel's sleep and wake-up, which take as long. Then others may have the
// core, and then the kernel. With fewer cores than members whoever is awaited
// may need this one at once.
SpinPolicy PolicyFor(int members) {
  return members <= HostCores() ? SpinPolicy{.spins = 4000, .yields = 1000}
                                : SpinPolicy{.spins = 0, .yields = 200};
}

}  // namespace

LocalGroup::LocalGroup(const Cancellation& cancellation,
                       const proto::Welcome& job, std::vector<int> ranks,
                       std::vector<WorkerArena*> arenas, Track* track)
    : cancellation_(cancellation),
      job_(job),
      ranks_(std::move(ranks)),
      arenas_(std::move(arenas)),
      track_(track),
      policy_(PolicyFor(size())),
      data_(ranks_.size()) {
  self_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), job.rank()) -
                           ranks_.begin());
}

bool LocalGroup::Shares(absl::Span<const float> data) const {
  WorkerArena& mine = *arenas_[self_];
  return data.data() >= mine.floats() &&
         data.data() + data.size() <= mine.floats() + mine.num_floats();
}

absl::Status LocalGroup::EnterShared(absl::Span<float> data, Time deadline) {
  return Enter(data.data() - arenas_[self_]->floats(),
               static_cast<int64_t>(data.size()), deadline);
}

absl::Status LocalGroup::EnterStaged(int64_t num_elements, Time deadline) {
  return Enter(-1, num_elements, deadline);
}

absl::Status LocalGroup::Enter(int64_t offset, int64_t num_elements,
                               Time deadline) {
  ++calls_;
  CollectiveCall& call = arenas_[self_]->call(static_cast<int>(calls_ % 2));
  call.offset.store(offset, std::memory_order_relaxed);
  call.num_elements.store(num_elements, std::memory_order_relaxed);
  arenas_[self_]->ready().Set(calls_);
  if (absl::Status s = AwaitAll(&WorkerArena::ready, deadline); !s.ok()) {
    return s;
  }
  return FindData(num_elements);
}

// What the others say is checked against their arenas before it is used.
absl::Status LocalGroup::FindData(int64_t num_elements) {
  const int parity = static_cast<int>(calls_ % 2);
  const bool staged =
      arenas_[self_]->call(parity).offset.load(std::memory_order_relaxed) < 0;
  for (int i = 0; i < size(); ++i) {
    CollectiveCall& call = arenas_[i]->call(parity);
    const int64_t offset = call.offset.load(std::memory_order_relaxed);
    const int64_t theirs = call.num_elements.load(std::memory_order_relaxed);
    if (theirs != num_elements || (offset < 0) != staged ||
        offset > arenas_[i]->num_floats() - num_elements) {
      return absl::InvalidArgumentError(absl::StrCat(
          Describe(job_.workers(ranks_[i])), " takes part in collective ",
          calls_, " with ", theirs, " elements from ", offset,
          ", where this process has ", num_elements,
          staged ? " staged ones" : " in its arena"));
    }
    data_[i] = staged ? Window(i, calls_) : arenas_[i]->floats() + offset;
  }
  return absl::OkStatus();
}

absl::Status LocalGroup::Leave(Time deadline) {
  arenas_[self_]->done().Set(calls_);
  return AwaitAll(&WorkerArena::done, deadline);
}

absl::Status LocalGroup::AwaitAll(SharedCounter& (WorkerArena::*counter)(),
                                  Time deadline) {
  for (int i = 0; i < size(); ++i) {
    SharedCounter& theirs = (arenas_[i]->*counter)();
    if (theirs.Reached(calls_)) continue;
    TimelineSpan span(track_, "await",
                      {.peer = ranks_[i], .peer_role = "worker"});
    while (!theirs.Reached(calls_)) {
      if (theirs.Await(calls_, policy_, kSlice)) break;
      if (absl::Status s = cancellation_.status(); !s.ok()) return s;
      if (while_waiting_) {
        if (absl::Status s = while_waiting_(); !s.ok()) return s;
      }
      if (Now() < deadline) continue;
      return absl::DeadlineExceededError(
          absl::StrCat(Describe(job_.workers(ranks_[i])),
                       counter == &WorkerArena::ready
                           ? " has not come to collective "
                           : " has not done its part of collective ",
                       calls_));
    }
  }
  return absl::OkStatus();
}

}  // namespace psring
