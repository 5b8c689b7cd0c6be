// Who is measured in a sweep, and how one run of it is made: processes are
// started, each times its part of every iteration and writes rank-RANK.json.
#ifndef PSRING_LAB_BENCH_CONTENDER_H_
#define PSRING_LAB_BENCH_CONTENDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/cluster/security.h"
#include "common/net/cancellation.h"
#include "lab/bench/limits.h"
#include "lab/host/hosts.h"
#include "lab/host/supervisor.h"

namespace psring {

// What one run measures.
struct Shape {
  int ranks = 2;
  int servers = 1;  // pushpull only
  int64_t size_bytes = 4;
  int64_t iterations = 20;
  int64_t warmup = 3;
  // Iterations back to back, on buffers that only the first of them finds
  // written anew; that one has a start in common with the other ranks.
  int64_t batch = 1;
};

struct Samples {
  // One for each iteration.
  std::vector<double> seconds;      // the slowest rank's
  std::vector<double> cpu_seconds;  // of all ranks
  double server_cpu_seconds = 0;    // in all iterations, of all servers
  int64_t server_peak_bytes = 0;    // of the server that held most; 0: none
};

// Where and with what runs are made. `cancellation` and `hosts` outlive it.
struct Stage {
  const Cancellation& cancellation;
  const Hosts* hosts = nullptr;  // null: all processes share this host
  Placement placement = Placement::kSeparate;
  std::string ps_binary;
  std::string worker_binary;
  std::string rank_binary;
  std::string optimizer = "sgd";  // the servers'
  Security security = {};         // psring's
  // For a whole run, and for one step in it.
  absl::Duration timeout = absl::Minutes(20);
  absl::Duration step_timeout = absl::Minutes(2);

  // What goes before the command line of that worker or rank to run it on its
  // host; nothing on this one.
  std::vector<std::string> WorkerPrefix(int rank) const;
};

class Contender {
 public:
  virtual ~Contender() = default;

  // "psring", or one of lab/bench/peers.h.
  virtual std::string name() const = 0;

  // Blocks until all its processes have ended. An error names the one that
  // failed, with its last lines.
  virtual absl::StatusOr<Samples> Run(const Shape& shape) = 0;
};

// psring's own ranks: "allreduce", "pushpull", or "copy", the concurrent
// streaming copy that is the limit on one host. `stage` outlives it.
std::unique_ptr<Contender> MakePsring(const Stage& stage,
                                      const std::string& operation);

// Runs the processes that `start` starts to their ends, at most for the stage's
// timeout. `on_line` may be empty.
using OnLine = std::function<void(Supervisor&, const std::string& name,
                                  absl::string_view line)>;
absl::Status RunToEnd(const Stage& stage,
                      const std::function<absl::Status(Supervisor&)>& start,
                      const OnLine& on_line = nullptr);

// Reads the files of ranks 0 to `ranks` - 1. DATA_LOSS names the file that is
// missing, damaged or has not `iterations` times.
absl::StatusOr<Samples> ReadSamples(const std::string& directory, int ranks,
                                    int64_t iterations);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_CONTENDER_H_
