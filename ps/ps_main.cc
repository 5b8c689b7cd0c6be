// psring ps: one parameter server process.
#include "common/cluster/model_parts.h"
#include "common/net/signals.h"
#include "common/process/command_line.h"
#include "common/process/process_main.h"
#include "ps/server.h"

int main(int argc, char** argv) {
  using namespace psring;
  CommandLine line("One parameter server process of a job.", "psring ps");
  line.Footer(
      "Example, on the first host and on the second:\n"
      "  psring ps --coordinator=10.0.0.1:7000 --host-coordinator --servers=2 "
      "--workers=4\n"
      "  psring ps --coordinator=10.0.0.1:7000");
  ProcessFlags flags;
  ServerOptions options;
  flags.AddTo(line);
  line.Add("--shard-threads", options.shard_threads,
           "Threads that share this server's part of the model; 0: this "
           "host's cores, at most 4")
      .Range(0, kMaxShardThreads);
  SoftStop soft_stop;
  return ProcessMain(
      line, flags, argc, argv,
      [&](Cancellation& cancellation) {
        auto cluster = flags.Cluster(/*is_ps_process=*/true);
        if (!cluster.ok()) return cluster.status();
        options.cluster = *cluster;
        options.same_host = flags.SameHostWish();
        options.step_timeout = flags.step_timeout();
        options.metrics_dir = flags.metrics_dir;
        options.tensorboard = flags.tensorboard;
        options.timeline = flags.timeline;
        return RunServer(options, cancellation, &soft_stop);
      },
      &soft_stop);
}
