// Everything that `psring bench` measures, one thing after the other.
#ifndef PSRING_LAB_BENCH_BENCH_RUN_H_
#define PSRING_LAB_BENCH_BENCH_RUN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/cluster/security.h"
#include "common/net/cancellation.h"
#include "lab/bench/limits.h"
#include "lab/bench/results.h"
#include "lab/host/arguments.h"

namespace psring {

struct BenchOptions {
  // What to measure: any of allreduce, pushpull, train, links.
  std::vector<std::string> operations;
  std::vector<std::string> peers;  // of kOpenMpi, ...
  // Whether the user has named them: one that fails then ends it all. Others
  // are left out from there on.
  bool peers_named = false;

  // Where: hosts of namespaces, or (0) this host alone.
  int hosts = 0;         // with a worker each
  int server_hosts = 0;  // beside them
  double link_bits_per_s = 0;
  Placement placement = Placement::kSeparate;

  // For allreduce and pushpull.
  std::vector<int64_t> sizes;  // in bytes
  std::vector<int> ranks;
  int64_t iterations = 20;
  int64_t warmup = 3;
  int rounds = 2;
  bool hot = false;               // iterations back to back on the same buffers
  std::string ps_lite;            // a built tree of it; "": none
  std::string optimizer = "sgd";  // the servers', in pushpull

  // For train.
  std::vector<std::string> models;
  std::vector<std::string> modes;       // of "ring", "ps-bsp", "ddp"
  bool modes_named = false;             // as peers_named, of "ddp"
  std::vector<std::string> precisions;  // of worker's --precision
  std::string data = "digits:train=8192,test=1024";  // worker's --data
  int batch_size = 64;                               // of each worker
  std::vector<int> workers;
  int64_t steps = 300;
  int repetitions = 3;
  std::string device = "cpu";  // or "cuda"

  int servers = 1;                             // of pushpull and ps-bsp
  absl::Duration timeout = absl::Minutes(20);  // of a single run
  Binaries binaries;
  Security security = {};  // psring's
};

// Measures all of it, with a line on stderr now and then. Fills in `results`;
// what the caller knows before may be there already. Blocks until every process
// has ended. An error names who failed and at what.
absl::Status RunBenchmarks(const BenchOptions& options,
                           const Cancellation& cancellation,
                           BenchResults* results);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_BENCH_RUN_H_
