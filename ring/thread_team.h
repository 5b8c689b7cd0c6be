// A few threads that share one loop.
#ifndef PSRING_RING_THREAD_TEAM_H_
#define PSRING_RING_THREAD_TEAM_H_

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "common/mutex.h"

namespace psring {

class ThreadTeam {
 public:
  // Starts `size` - 1 threads; the caller of Run is the last.
  explicit ThreadTeam(int size);
  // Joins them.
  ~ThreadTeam();

  int size() const { return static_cast<int>(threads_.size()) + 1; }

  // Calls `part` with 0 to size() - 1, each on a thread of its own, and returns
  // when all have returned. One caller at a time.
  void Run(absl::FunctionRef<void(int)> part);

 private:
  void Work(int index);

  Mutex mutex_;
  const absl::FunctionRef<void(int)>* part_ ABSL_GUARDED_BY(mutex_) = nullptr;
  int64_t round_ ABSL_GUARDED_BY(mutex_) = 0;
  int working_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace psring

#endif  // PSRING_RING_THREAD_TEAM_H_
