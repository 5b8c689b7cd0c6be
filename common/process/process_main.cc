#include "common/process/process_main.h"

#include <poll.h>
#include <unistd.h>

#include <csignal>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/cluster/environment.h"
#include "common/log.h"
#include "common/process/open_files.h"
#include "common/process/page_flags.h"
#include "common/process/stacks.h"
#include "common/process/standard_files.h"
#include "common/process/thread_limit.h"

namespace psring {
namespace {

// How long a process that has failed, or was told to end, may take for it.
constexpr absl::Duration kEndTimeout = absl::Seconds(30);

// How long threads may take to say where they are.
constexpr absl::Duration kThreadsTimeout = absl::Seconds(2);
// And how long it may take to find the names of what they do.
constexpr absl::Duration kThreadsPatience = absl::Seconds(15);

// Whatever its thread waits for, such as the loader's lock, this does not.
void TellThreads(const std::string& name) {
  const auto told = std::make_shared<std::promise<void>>();
  std::thread([name, told] {
    LogBare(
        absl::StrCat(name, ": its threads:\n", ThreadsReport(kThreadsTimeout)));
    told->set_value();
  }).detach();
  told->get_future().wait_for(absl::ToChronoSeconds(kThreadsPatience));
}

// Ends a process whose threads do not end when it is cancelled: they hang.
class LastResort {
 public:
  LastResort(const std::string& name, Cancellation& cancellation)
      : thread_([this, name, &cancellation] {
          pollfd fds[] = {{cancellation.fd(), POLLIN, 0},
                          {ended_.fd(), POLLIN, 0}};
          while (poll(fds, 2, -1) < 0) {
          }
          if (cancellation.status().ok()) return;
          if (!ended_.SleepUntil(Now() + kEndTimeout).ok()) return;
          TellThreads(name);
          LogBare(absl::StrCat(name, ": ", cancellation.status().message(),
                               ". This process hangs, and ends now\n"));
          _exit(1);
        }) {}
  ~LastResort() {
    ended_.Cancel(absl::CancelledError("the process ends"));
    thread_.join();
  }

 private:
  Cancellation ended_;
  std::thread thread_;
};

void WriteThreads(const std::string& name) {
  LogBare(absl::StrCat(name, ": SIGUSR1: what the threads of pid ", getpid(),
                       " do:\n", ThreadsReport(kThreadsTimeout)));
}

const char kCluster[] = "Cluster";

void AddPlaceFlags(CommandLine& line, ProcessFlags& flags) {
  line.Add("--coordinator", flags.coordinator,
           "HOST:PORT where the job's coordinator listens")
      .Group(kCluster);
  line.Add("--host-coordinator", flags.host_coordinator,
           "This process runs the coordinator, at --coordinator")
      .Group(kCluster);
  line.Add("--servers", flags.servers, "Number of ps processes of the job")
      .Range(0, 4096)
      .Default("")
      .Group(kCluster);
  line.Add("--workers", flags.workers, "Number of workers of the job")
      .Range(1, 4096)
      .Default("")
      .Group(kCluster);
  line.Add("--rank", flags.rank,
           "This process's rank among the job's servers or workers")
      .Range(0, 4095)
      .Default("")
      .Group(kCluster);
  line.Add("--advertise", flags.advertise,
           "Address at which the others reach this process")
      .Group(kCluster);
  line.Add("--interface", flags.interface,
           "Network interface whose address to advertise")
      .Group(kCluster);
  line.Add("--ports", flags.ports,
           "FIRST-LAST: ports on which this process listens for the others, as "
           "a firewall lets them through; default: the system chooses")
      .Group(kCluster);
}

// How it deals with the others.
void AddPeerFlags(CommandLine& line, ProcessFlags& flags) {
  line.Add("--key-file", flags.security.key_file,
           "File with the job's key, as psring keygen writes it; "
           "default: $PSRING_KEY_FILE, the launcher's, "
           "~/.config/psring/key")
      .Group(kCluster);
  line.Add("--insecure", flags.security.insecure,
           "No key: whoever reaches this process may take part, and reads "
           "what it sends")
      .Group(kCluster);
  line.Add("--require-encryption", flags.security.require_encryption,
           "Refuse a job of which anything travels in the clear: one "
           "without a key, or over NCCL between hosts")
      .Group(kCluster);
  line.Add("--same-host", flags.same_host,
           "auto: processes of one host share memory; off: they send "
           "messages")
      .OneOf({"auto", "off"})
      .Group(kCluster);
  line.Add("--join-timeout", flags.join_timeout_s,
           "Seconds within which every process must have joined, from the "
           "first one on")
      .Range(1.0, 86400.0)
      .Group(kCluster);
  line.Add("--heartbeat-timeout", flags.heartbeat_timeout_s,
           "Seconds for which a process, or its network, may be silent before "
           "it counts as lost, which ends the job with its name; the process "
           "that hosts the coordinator decides it for all")
      .Range(2.0, 86400.0)
      .Group(kCluster);
  line.Add("--step-timeout", flags.step_timeout_s,
           "Seconds that a step may wait for another process")
      .Range(1.0, 86400.0)
      .Group(kCluster);
  line.Add("--progress-timeout", flags.progress_timeout_s,
           "Seconds for which a process may work at one thing (a step, a "
           "batch of an evaluation, a checkpoint) before it counts as "
           "hung, which ends the job with its name; 0: for ever")
      .Range(0.0, 86400.0)
      .Group(kCluster);
  line.Add("--coordinator-port-file", flags.coordinator_port_file,
           "File to write the coordinator's port to (with port 0)")
      .Group(kCluster);
}

void AddOutputFlags(CommandLine& line, ProcessFlags& flags) {
  const char* output = "Output";
  line.Add("--metrics-dir", flags.metrics_dir,
           "Folder for this process's metrics (JSON lines)")
      .Group(output);
  line.Add("--tensorboard", flags.tensorboard,
           "Folder for worker 0's metrics, and a server's, as TensorBoard "
           "reads them")
      .Group(output);
  line.AddWithImplied("--page", kDefaultPage, flags.page, kPageHelp)
      .TypeName("HOST:PORT")
      .Group(output);
  line.Add("--page-token-file", flags.page_token_file, kPageTokenHelp)
      .Group(output);
  line.Add("--timeline", flags.timeline.directory,
           "Folder for the record of what this process does when, in "
           "Chrome's trace format: see psring timeline")
      .Group(output);
  line.Add("--timeline-mb", flags.timeline.max_mb,
           "Size in MiB at which the timeline ends")
      .Range(int64_t{1}, int64_t{1} << 16)
      .Group(output);
  line.Add("--log-level", flags.log_level, "Least severe messages to log")
      .OneOf({"debug", "info", "warn", "error"})
      .Group(output);
}

}  // namespace

void ProcessFlags::AddTo(CommandLine& line) {
  AddPlaceFlags(line, *this);
  AddPeerFlags(line, *this);
  AddOutputFlags(line, *this);
}

absl::StatusOr<ClusterOptions> ProcessFlags::Cluster(bool is_ps_process) const {
  const Variables variables = ReadVariables();
  auto environment = DetectEnvironment(variables);
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
  auto found = FindSecurity(security, variables);
  if (!found.ok()) return found.status();
  return ClusterOptions{
      .placement = *placement,
      .mode = mode == "ring" ? proto::RING : proto::PARAMETER_SERVER,
      .advertise = advertise,
      .interface = interface,
      .ports = ports,
      .coordinator_port_file = coordinator_port_file,
      .join_timeout = absl::Seconds(join_timeout_s),
      .heartbeat_timeout = absl::Seconds(heartbeat_timeout_s),
      .progress_timeout = absl::Seconds(progress_timeout_s),
      .security = *std::move(found),
      .page = page,
      .page_token_file = page_token_file};
}

int ProcessMain(CommandLine& line, const ProcessFlags& flags, int argc,
                char** argv,
                const std::function<absl::Status(Cancellation&)>& body,
                SoftStop* soft_stop) {
  OpenStandardFiles();
  EndWhereNoThreadStarts(line.name());
  if (const auto code = line.Parse({argv + 1, argv + argc}); code.has_value()) {
    return *code;
  }
  // A limit of file sizes is an error of ftruncate, not the process's end.
  std::signal(SIGXFSZ, SIG_IGN);
  IgnoreBrokenPipes();
  AllowAllFiles();
  SetUpLog(flags.log_level);
  absl::Status status;
  int signal = 0;
  {
    Cancellation cancellation;
    SignalWatcher watcher(
        cancellation, {.soft_stop = soft_stop,
                       .on_user_signal = [&] { WriteThreads(line.name()); }});
    const LastResort last_resort(line.name(), cancellation);
    status = body(cancellation);
    signal = watcher.received();
  }
  if (status.ok()) return 0;
  LogBare(absl::StrCat(line.name(), ": ", status.message(), "\n"));
  if (signal != 0) return 128 + signal;
  return status.code() == absl::StatusCode::kInvalidArgument ? 2 : 1;
}

}  // namespace psring
