// psring ps: one parameter server process.
#include "CLI/CLI.hpp"
#include "common/process/process_main.h"
#include "ps/server.h"

int main(int argc, char** argv) {
  using namespace psring;
  CLI::App app("One parameter server process of a job.", "psring ps");
  app.footer(
      "Example, on the first host and on the second:\n"
      "  psring ps --coordinator=10.0.0.1:7000 --host-coordinator --servers=2 "
      "--workers=4\n"
      "  psring ps --coordinator=10.0.0.1:7000");
  ProcessFlags flags;
  ServerOptions options;
  flags.AddTo(app);
  app.add_option("--shard-threads", options.shard_threads,
                 "Threads that share this server's part of the model; 0: this "
                 "host's cores, at most 4")
      ->check(CLI::Range(0, 64))
      ->capture_default_str();
  return ProcessMain(app, flags, argc, argv, [&](Cancellation& cancellation) {
    auto cluster = flags.Cluster(/*is_ps_process=*/true);
    if (!cluster.ok()) return cluster.status();
    options.cluster = *cluster;
    options.same_host = flags.SameHostWish();
    options.step_timeout = flags.step_timeout();
    options.metrics_dir = flags.metrics_dir;
    options.timeline = flags.timeline;
    return RunServer(options, cancellation);
  });
}
