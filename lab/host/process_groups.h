// The process groups of children that live.
#ifndef PSRING_LAB_HOST_PROCESS_GROUPS_H_
#define PSRING_LAB_HOST_PROCESS_GROUPS_H_

#include <sys/types.h>

#include <set>

#include "absl/base/thread_annotations.h"
#include "common/mutex.h"
#include "common/net/signals.h"

namespace psring {

// For a thread that stops or ends the process at once, while another serves the
// children. No function blocks: nobody waits for a child or writes output while
// he has the mutex. Any thread.
class ProcessGroups {
 public:
  void Add(pid_t leader);
  // Before the leader is reaped: the system may then give its number anew.
  void Remove(pid_t leader);
  // Sends it to everybody in them.
  void SignalAll(int signal);

 private:
  Mutex mutex_;
  std::set<pid_t> leaders_ ABSL_GUARDED_BY(mutex_);
};

// Of a program whose children are in `groups`, which outlives the watcher: it
// gives them time to end, takes them with it when it is suspended, and kills
// them before a second signal ends it at once.
SignalActions ActionsOn(ProcessGroups& groups);

}  // namespace psring

#endif  // PSRING_LAB_HOST_PROCESS_GROUPS_H_
