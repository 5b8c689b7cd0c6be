// Where the time of training steps went, and who was waited for. Pure. Of a
// worker on a GPU: where the GPU's time went.
//
// A worker arrives at a step when its gradients are ready: where it begins to
// wait for the exchange. A synchronous step goes on when the last worker has
// arrived that it needs: all of them (bsp, ring), all but the backup workers,
// or, with a staleness of k (ssp), those of the k-th step before; in async
// nobody. So much of a wait as lies before that is waiting for that worker, the
// rest is communication that no computation hides: sending, summing, updating,
// receiving. Of the latter the server is named whose answers came last.
#ifndef PSRING_COMMON_TRACE_STEP_TIMES_H_
#define PSRING_COMMON_TRACE_STEP_TIMES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace psring {

// One step of one worker; durations in nanoseconds, times by a common clock.
struct WorkerStep {
  int64_t whole = 0;  // 0: not known
  int64_t data = 0;
  int64_t forward = 0;
  int64_t backward = 0;  // without the encoding that lies in it
  int64_t encode = 0;
  int64_t slow = 0;  // an injected fault
  int64_t arrived = 0;
  int64_t went_on = 0;  // 0: not known
  // After it, before an evaluation: for workers with steps to make.
  int64_t catch_up = 0;
  int last_server = -1;  // -1: no server
};

using WorkerSteps = std::map<int64_t, WorkerStep>;  // by step

struct SyncRule {
  std::string sync = "bsp";
  int64_t staleness = 0;
  int backup_workers = 0;
};

// Seconds of all steps.
struct WorkerTimes {
  int64_t steps = 0;
  double whole = 0;
  double data = 0;
  double forward = 0;
  double backward = 0;
  double encode = 0;  // compression
  double slow = 0;
  double exposed = 0;
  double waiting = 0;
  double catch_up = 0;  // beside `whole`
  double other() const {
    return whole - data - forward - backward - encode - slow - exposed -
           waiting;
  }
  void Add(const WorkerTimes& more);
};

// What others waited for it, all workers together.
struct HeldUp {
  std::string who;
  int64_t steps = 0;  // of workers
  double seconds = 0;
};

struct Explanation {
  std::vector<WorkerTimes> workers;  // by rank
  WorkerTimes total;
  std::vector<HeldUp> late;     // workers that were waited for, longest first
  std::vector<HeldUp> servers;  // whose answers came last, longest first
};

Explanation Explain(const std::vector<WorkerSteps>& workers,
                    const SyncRule& rule);

}  // namespace psring

#endif  // PSRING_COMMON_TRACE_STEP_TIMES_H_
