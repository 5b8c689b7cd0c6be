#include "lab/host/process_groups.h"

#include <signal.h>

namespace psring {

void ProcessGroups::Add(pid_t leader) {
  MutexLock lock(&mutex_);
  leaders_.insert(leader);
}

void ProcessGroups::Remove(pid_t leader) {
  MutexLock lock(&mutex_);
  leaders_.erase(leader);
}

void ProcessGroups::SignalAll(int signal) {
  MutexLock lock(&mutex_);
  for (const pid_t leader : leaders_) kill(-leader, signal);
}

}  // namespace psring
