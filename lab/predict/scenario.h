// What a prediction starts from: plain numbers, in bytes, seconds and their
// quotients.
#ifndef PSRING_LAB_PREDICT_SCENARIO_H_
#define PSRING_LAB_PREDICT_SCENARIO_H_

#include <cstdint>
#include <numeric>
#include <vector>

#include "common/model/layout.h"

namespace psring {

struct Hardware {
  // What a stream of bytes gets through a host's link, in each direction.
  double link_bytes_per_s = 1.25e9;
  // The time from sending a small message until a thread of the receiver has
  // it.
  double latency_s = 30e-6;
  // How far a link that was idle is ahead of its rate: the bucket of a shaped
  // link, as hosts that are namespaces have it. A cable has 0.
  double burst_s = 0;
  // A thread's work on each message, beside its bytes.
  double message_s = 5e-6;
  // Bytes of gradients that one thread sums and applies in a second.
  double update_bytes_per_s = 4e9;
  // Threads of a server.
  int shards = 4;
  // Hosts that are namespaces of one machine send and receive on the same
  // cores, which are busy for so long with a byte on its way from one host to
  // another, and for so long with each message. 0: every host has cores enough.
  int shared_cores = 0;
  double cpu_s_per_byte = 0;
  double cpu_s_per_message = 0;
  // Whether flows share a link fairly at every instant; see network.h.
  bool fair_flows = false;
};

// One step of training, as every worker sees it.
struct Workload {
  // Float32 elements of each bucket, in the order in which they leave; the
  // first bucket holds the model's last tensors.
  std::vector<int64_t> buckets = {};
  // Distributions of a step's forward and backward passes, as measured times:
  // one for each worker, or a single one that all workers share. Empty: they
  // compute nothing.
  std::vector<std::vector<double>> compute_s = {};
  // The part of that time before the first gradients are computed. The
  // gradients then appear evenly over the rest, element by element.
  double forward_share = 1.0 / 3;
  // false: gradients are summed and nothing is done with them, as bench's
  // allreduce does. Servers always apply them.
  bool updates = true;
};

enum class TopologyKind { kRing, kPs };

struct Topology {
  TopologyKind kind = TopologyKind::kRing;
  int workers = 2;  // hosts, a worker on each
  // kPs: hosts with a server and no worker, and whether the workers' hosts have
  // a server each too.
  int server_hosts = 0;
  bool colocated = false;

  int num_servers() const {
    return kind == TopologyKind::kPs ? server_hosts + (colocated ? workers : 0)
                                     : 0;
  }
};

// How exactly to simulate.
struct Effort {
  // Steps, each with times of its own for every worker and weights for every
  // flow; fewer where all take as long and flows are many, one where a step
  // draws nothing.
  int steps = 20;
  uint64_t seed = 0;
  // Beyond so many messages a step, equal hosts are simulated as one and large
  // models in larger pieces; see predict_step.h.
  int64_t max_messages = 30'000;
};

inline int64_t NumElements(const Workload& workload) {
  return std::accumulate(workload.buckets.begin(), workload.buckets.end(),
                         int64_t{0});
}

// In backward order, as a layout's.
inline std::vector<Range> BucketsOf(const std::vector<int64_t>& sizes) {
  std::vector<Range> buckets;
  int64_t end = std::accumulate(sizes.begin(), sizes.end(), int64_t{0});
  for (const int64_t elements : sizes) {
    buckets.push_back({end - elements, end});
    end -= elements;
  }
  return buckets;
}

inline double NumBytes(const Workload& workload) {
  return static_cast<double>(NumElements(workload)) * sizeof(float);
}

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_SCENARIO_H_
