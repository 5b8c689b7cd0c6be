#include "common/process/process_main.h"

#include <csignal>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/cluster/environment.h"
#include "common/net/signals.h"
#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace psring {

void ProcessFlags::AddTo(CLI::App& app) {
  app.set_help_flag("--help,-h", "Print this help and exit");
  const char* cluster = "Cluster";
  app.add_option("--coordinator", coordinator,
                 "HOST:PORT where the job's coordinator listens")
      ->group(cluster);
  app.add_flag("--host-coordinator", host_coordinator,
               "This process runs the coordinator, at --coordinator")
      ->group(cluster);
  app.add_option("--servers", servers, "Number of ps processes of the job")
      ->check(CLI::Range(0, 4096))
      ->group(cluster);
  app.add_option("--workers", workers, "Number of workers of the job")
      ->check(CLI::Range(1, 4096))
      ->group(cluster);
  app.add_option("--rank", rank,
                 "This process's rank among the job's servers or workers")
      ->check(CLI::Range(0, 4095))
      ->group(cluster);
  app.add_option("--advertise", advertise,
                 "Address at which the others reach this process")
      ->group(cluster);
  app.add_option("--interface", interface,
                 "Network interface whose address to advertise")
      ->group(cluster);
  app.add_option("--same-host", same_host,
                 "auto: processes of one host share memory; off: they send "
                 "messages")
      ->check(CLI::IsMember({"auto", "off"}))
      ->capture_default_str()
      ->group(cluster);
  app.add_option("--join-timeout", join_timeout_s,
                 "Seconds within which every process must have joined")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str()
      ->group(cluster);
  app.add_option("--step-timeout", step_timeout_s,
                 "Seconds that a step may wait for another process")
      ->check(CLI::Range(1.0, 86400.0))
      ->capture_default_str()
      ->group(cluster);
  app.add_option("--coordinator-port-file", coordinator_port_file,
                 "File to write the coordinator's port to (with port 0)")
      ->group(cluster);
  const char* output = "Output";
  app.add_option("--metrics-dir", metrics_dir,
                 "Folder for this process's metrics (JSON lines)")
      ->group(output);
  app.add_option("--timeline", timeline.directory,
                 "Folder for the record of what this process does when, in "
                 "Chrome's trace format: see psring timeline")
      ->group(output);
  app.add_option("--timeline-mb", timeline.max_mb,
                 "Size in MiB at which the timeline ends")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 16))
      ->capture_default_str()
      ->group(output);
  app.add_option("--log-level", log_level, "Least severe messages to log")
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str()
      ->group(output);
}

absl::StatusOr<ClusterOptions> ProcessFlags::Cluster(bool is_ps_process) const {
  auto environment = DetectEnvironment(ReadVariables());
  if (!environment.ok()) return environment.status();
  auto placement = Place({.coordinator = coordinator,
                          .host_coordinator = host_coordinator,
                          .rank = rank,
                          .num_servers = servers,
                          .num_workers = workers,
                          .ring_mode = mode == "ring",
                          .is_ps_process = is_ps_process},
                         *environment);
  if (!placement.ok()) return placement.status();
  return ClusterOptions{
      .placement = *placement,
      .mode = mode == "ring" ? proto::RING : proto::PARAMETER_SERVER,
      .advertise = advertise,
      .interface = interface,
      .coordinator_port_file = coordinator_port_file,
      .join_timeout = absl::Seconds(join_timeout_s)};
}

int ProcessMain(CLI::App& app, const ProcessFlags& flags, int argc, char** argv,
                const std::function<absl::Status(Cancellation&)>& body) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s: %s. See --help\n", app.get_name().c_str(),
                 error.what());
    return 2;
  }
  // A limit of file sizes is an error of ftruncate, not the process's end.
  std::signal(SIGXFSZ, SIG_IGN);
  auto log = spdlog::stderr_color_mt("psring");
  log->set_pattern("%H:%M:%S.%e %^%l%$ %v");
  log->set_level(spdlog::level::from_str(flags.log_level));
  spdlog::set_default_logger(log);
  absl::Status status;
  int signal = 0;
  {
    Cancellation cancellation;
    SignalWatcher watcher(cancellation);
    status = body(cancellation);
    signal = watcher.received();
  }
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(),
               std::string(status.message()).c_str());
  if (signal != 0) return 128 + signal;
  return status.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace psring
