// psring worker: one worker process, in either topology. Where a launcher
// starts all processes of a job with the same command, the first ones become
// servers.

#include <string>

#include "client/own_servers.h"
#include "common/net/signals.h"
#include "common/process/command_line.h"
#include "common/process/process_main.h"
#include "common/trace/event_file.h"
#include "worker/torch/torch_version.h"
#include "worker/worker.h"
#include "worker/worker_flags.h"

namespace psring {
namespace {

TextTableRows FlagRows(const CommandLine& line) {
  TextTableRows rows;
  for (const CommandLine::FlagValue& flag : line.All()) {
    rows.emplace_back(flag.name, flag.value);
  }
  return rows;
}

absl::Status Run(const CommandLine& line, const WorkerFlags& flags,
                 WorkerOptions& options, Cancellation& cancellation,
                 SoftStop& soft_stop) {
  if (absl::Status s = flags.Fill(line, options); !s.ok()) return s;
  auto cluster = flags.process.Cluster(/*is_ps_process=*/false);
  if (!cluster.ok()) return cluster.status();
  options.cluster = *cluster;
  if (cluster->placement.role == proto::PS) {
    return RunServer({.cluster = *cluster,
                      .shard_threads = flags.shard_threads,
                      .same_host = options.same_host,
                      .step_timeout = options.step_timeout,
                      .metrics_dir = options.metrics_dir,
                      .tensorboard = options.tensorboard,
                      .timeline = options.timeline},
                     cancellation, &soft_stop);
  }
  return RunWorker(options, cancellation, soft_stop);
}

}  // namespace
}  // namespace psring

int main(int argc, char** argv) {
  using namespace psring;
  CommandLine line("One worker process of a job.", "psring worker");
  line.Footer(
      "Example, once a host:\n"
      "  psring worker --coordinator=10.0.0.1:7000 --model=lenet "
      "--data=mnist:/data/mnist --sync=bsp --epochs=10\n"
      "and without servers, rank 0 hosting the coordinator:\n"
      "  psring worker --mode=ring --coordinator=10.0.0.2:7000 --workers=4 "
      "--rank=0 ...");
  line.Version(DescribeTorch);
  WorkerFlags flags;
  WorkerOptions options;
  flags.AddTo(line, options);
  SoftStop soft_stop;
  const int code = ProcessMain(
      line, flags.process, argc, argv,
      [&](Cancellation& cancellation) {
        options.flags = FlagRows(line);
        return Run(line, flags, options, cancellation, soft_stop);
      },
      &soft_stop);
  return code == 0 && soft_stop.stopped() ? options.stopped_exit_code : code;
}
