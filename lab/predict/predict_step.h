// How long a synchronous step takes in a topology: drawn compute times, the
// simulators, and how coarsely they run.
//
// Each simulated step draws every worker's compute time anew. Where a step has
// more messages than Effort allows, hosts that are alike become one: in a ring
// all ranks do, as they do the same at the same instants from when the last has
// come; of workers and of servers eight classes remain, the slowest worker a
// class of its own, the others with neighbours in speed; pieces of a large
// model travel several at once, and neighbours of its many buckets leave
// together. Where both can run they agree within a few
// percent, which tests/predict holds them to.
#ifndef PSRING_LAB_PREDICT_PREDICT_STEP_H_
#define PSRING_LAB_PREDICT_PREDICT_STEP_H_

#include <string>
#include <vector>

#include "common/net/cancellation.h"
#include "lab/predict/scenario.h"

namespace psring {

struct Prediction {
  Topology topology;
  double step_s = 0;  // the mean
  double p99_s = 0;
  double compute_s = 0;   // of it, what one worker computes on average
  double exchange_s = 0;  // the same step where nobody computes
  bool coarse = false;

  double efficiency() const { return step_s > 0 ? compute_s / step_s : 0; }
};

// The same for the same arguments. `workload` has buckets and `topology`
// workers and, for kPs, servers. Once `cancellation`, if any, is cancelled, it
// returns early, and the numbers mean nothing.
Prediction PredictStep(const Hardware& hardware, const Workload& workload,
                       const Topology& topology, const Effort& effort = {},
                       const Cancellation* cancellation = nullptr);

// What can be run on `workers` hosts: the ring; servers on `servers` hosts of
// their own, of each of these numbers; a server on every worker's host, without
// and with some of these numbers of hosts beside them.
std::vector<Topology> Candidates(int workers, const std::vector<int>& servers);

// 1, 2, 4, ... up to as many servers as workers.
std::vector<int> AutoServers(int workers);

// "ring", "ps, 4 servers", "ps, a server on every host", "... + 2".
std::string Describe(const Topology& topology);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_PREDICT_STEP_H_
