// One step over the ring, as ring/tcp_communicator runs it: buckets one after
// the other, each the way that ring/routes.h chooses for its size. Large ones
// go round: cut into a slice a rank and those into segments, every slice
// through 2(n-1) hops, every segment going on as soon as it has come; the rank
// where a slice's sum is complete applies the optimizer to it. Small ones go
// straight to the slices' owners and back, or whole to everybody.
#ifndef PSRING_LAB_PREDICT_RING_SIMULATOR_H_
#define PSRING_LAB_PREDICT_RING_SIMULATOR_H_

#include <vector>

#include "common/net/cancellation.h"
#include "lab/predict/scenario.h"

namespace psring {

// Seconds until all ranks hold the new parameters. compute_s: of every worker's
// forward and backward passes; all of them are simulated where there are as
// many as workload says, and one in the place of all where `compute_s` has just
// one: then every rank does the same at the same instant. As a bucket comes
// round only with every rank's part in it, ranks that begin at different times
// end when they would if all began with the last. Once `cancellation`, if any,
// is cancelled, it returns early, and the number means nothing.
double SimulateRing(const Hardware& hardware, const Workload& workload,
                    int workers, const std::vector<double>& compute_s,
                    const Cancellation* cancellation = nullptr);

// Messages of such a step that are simulated.
int64_t RingMessages(const Workload& workload, int workers);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_RING_SIMULATOR_H_
