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

SignalActions ActionsOn(ProcessGroups& groups) {
  return {.patient = true,
          .on_suspend = [&] { groups.SignalAll(SIGSTOP); },
          .on_resume = [&] { groups.SignalAll(SIGCONT); },
          .last_act = [&] { groups.SignalAll(SIGKILL); }};
}

}  // namespace psring
