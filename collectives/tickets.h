// Where callers and whoever runs the mesh meet: what is called, what has come
// of it, and who waits for it.
#ifndef PSRING_COLLECTIVES_TICKETS_H_
#define PSRING_COLLECTIVES_TICKETS_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "collectives/call.h"
#include "collectives/flow_plan.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace psring {

// Calls that are not done; more are refused.
inline constexpr int kMaxPending = 1 << 16;
// A caller that waits again within this time has been waiting in between.
inline constexpr absl::Duration kPollGap = absl::Milliseconds(500);

// Who takes part, by rank.
struct CollectiveJob {
  uint64_t epoch = 0;
  int rank = 0;
  std::vector<std::string> endpoints;
  std::vector<std::string> public_keys;   // none in a job without a key
  std::vector<std::string> descriptions;  // "worker 3 (host b, pid 4711)"
  std::vector<int64_t> pids;              // whose memory is a rank's
  std::thread::id main_thread;            // of this rank

  int size() const { return static_cast<int>(endpoints.size()); }
  std::string KeyOf(int rank) const {
    return public_keys.empty() ? "" : public_keys[rank];
  }
};

// Any thread calls what is not said to be for whoever runs the mesh.
class Tickets {
 public:
  Tickets();
  ~Tickets();
  Tickets(const Tickets&) = delete;
  Tickets& operator=(const Tickets&) = delete;

  // Once, before any Post.
  void Connect(CollectiveJob job);

  // A handle above 0; never blocks. No call: this rank has no more data.
  // RESOURCE_EXHAUSTED with kMaxPending calls that are not done. Wakes nobody:
  // see MeshRunner::OnPosted.
  absl::StatusOr<int64_t> Post(std::optional<Call> call);

  // Blocks for at most `timeout`; whether it is done, or how it has failed.
  // With a timeout of 0 the caller counts as one that does not wait for it.
  // INVALID_ARGUMENT for a handle that is not there. First, where the handle is
  // not done, calls `help` with the end of the timeout, under no lock: it may
  // bring about what is waited for.
  absl::StatusOr<bool> Wait(int64_t handle, absl::Duration timeout,
                            absl::FunctionRef<void(Time)> help);

  // See Collectives::SetOrder.
  absl::Status SetOrder(int64_t handle, absl::string_view order);

  // Forgets the handle. One that is not done is given up: blocks until the
  // mesh has let go of its memory, which takes moments.
  absl::Status Release(int64_t handle);

  // What it has brought. FAILED_PRECONDITION before it is done.
  absl::StatusOr<std::vector<int64_t>> Sizes(int64_t handle);
  absl::Status Copy(int64_t handle, void* out, int64_t bytes);

  // The collectives' thread is to end.
  void Stop();

  // Makes fd() readable until the next Take.
  void Wake();

  // All below: for whoever runs the mesh.

  int fd() const { return fd_; }
  // Whether Take has something new, or is to make fd() unreadable; after Stop,
  // always.
  bool HasWork() const { return has_work_; }
  // Whether nobody waits for it any more, or it is done.
  bool IsSettled(int64_t handle);

  struct Posted {
    int64_t handle = 0;
    std::optional<Call> call;
  };
  struct Work {
    std::optional<CollectiveJob> job;
    std::vector<Posted> posted;
    std::vector<int64_t> given_up;
    bool stop = false;
  };
  Work Take();

  void Finish(int64_t handle, absl::Status status, Gathered gathered);

  // For how long callers have been waiting without a break; zero where none is.
  struct Awaited {
    absl::Duration by_any;
    // If the main thread is among them. Another one may wait for what another
    // rank's main thread calls only later.
    absl::Duration by_main;
    std::string order;  // of the handle
  };
  Awaited AwaitedFor(int64_t handle, Time now);

 private:
  struct Ticket {
    bool done = false;
    absl::Status status;
    Gathered gathered;
    int waiters = 0;
    bool main_waits = false;  // or has waited
    std::string order;
    Time waiting_since;
    Time last_waited = Time::InfinitePast();
  };

  void WakeLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<Ticket*> Done(int64_t handle)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const int fd_;
  std::atomic<bool> has_work_ = false;  // changes under mutex_

  Mutex mutex_;
  bool readable_ ABSL_GUARDED_BY(mutex_) = false;  // fd_
  std::thread::id main_ ABSL_GUARDED_BY(mutex_);
  Work work_ ABSL_GUARDED_BY(mutex_);
  std::map<int64_t, Ticket> tickets_ ABSL_GUARDED_BY(mutex_);
  int64_t last_handle_ ABSL_GUARDED_BY(mutex_) = 0;
  int pending_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace psring

#endif  // PSRING_COLLECTIVES_TICKETS_H_
