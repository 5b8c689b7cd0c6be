// One bsp step through parameter servers, as ps/ps_exchange and ps/shard_server
// run it: servers have parts of every bucket, cut once more among their threads
// (common/model/shard_cut.h); workers push their buckets' pieces, at most
// kWindowPieces ahead of the answers on each link, and look at answers only
// when backward is over; a piece is summed, applied and answered when every
// worker has pushed it.
#ifndef PSRING_LAB_PREDICT_PS_SIMULATOR_H_
#define PSRING_LAB_PREDICT_PS_SIMULATOR_H_

#include <cstdint>
#include <vector>

#include "common/net/cancellation.h"
#include "lab/predict/scenario.h"

namespace psring {

// Equal hosts that are simulated as one. Workers' hosts in order, those without
// a worker behind them.
struct HostClass {
  int count = 1;
  bool worker = true;
  double compute_s = 0;  // of each of its workers
  bool server = false;   // one on each of them that has a part of the model
};

// Seconds until every worker holds the new parameters. `pieces_at_once`: that
// so many pieces travel as one message. `seed`: of the flows' turns. Once
// `cancellation`, if any, is cancelled, it returns early, and the number means
// nothing.
double SimulatePs(const Hardware& hardware, const Workload& workload,
                  const Topology& topology,
                  const std::vector<HostClass>& classes, int pieces_at_once,
                  uint64_t seed, const Cancellation* cancellation = nullptr);

// Messages of such a step that are simulated, of `workers` classes of workers
// and `servers` classes of servers.
int64_t PsMessages(const Workload& workload, const Hardware& hardware,
                   int workers, int servers, int pieces_at_once);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_PS_SIMULATOR_H_
