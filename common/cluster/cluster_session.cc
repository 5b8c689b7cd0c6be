#include "common/cluster/cluster_session.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/cluster/pod_names.h"
#include "common/counted.h"
#include "common/fnv.h"
#include "common/host_hardware.h"
#include "common/log.h"
#include "common/printable.h"

namespace psring {
namespace {

// How long a process that cannot join tries to tell.
constexpr absl::Duration kDeclineTimeout = absl::Seconds(5);
// Of its reason. A first message is short: see visitors.h.
constexpr size_t kMaxFailureBytes = 2048;

// The file takes the place of what is at `path`: never that of a device, a pipe
// or a link, such as /dev/stdout.
absl::Status WritePortFile(const std::string& path,
                           const std::string& endpoint) {
  const auto cannot = [&](absl::string_view why) {
    return absl::PermissionDeniedError(absl::StrCat(
        "--coordinator-port-file: cannot write ", path, ": ", why));
  };
  struct stat there;
  if (lstat(path.c_str(), &there) == 0 && !S_ISREG(there.st_mode) &&
      !S_ISDIR(there.st_mode)) {  // whose error is told below
    return cannot("there is something else than a file. Name a new one");
  }
  const std::string temporary = absl::StrCat(path, ".", getpid());
  const std::string text = absl::StrCat(ParseEndpoint(endpoint)->port, "\n");
  unlink(temporary.c_str());
  // Not through a link that another user has put there.
  const int fd =
      open(temporary.c_str(),
           O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0) {
    const ssize_t size = write(fd, text.data(), text.size());
    if (size != static_cast<ssize_t>(text.size())) {
      error = size < 0 ? errno : ENOSPC;
    }
    close(fd);
    if (error == 0 && std::rename(temporary.c_str(), path.c_str()) != 0) {
      error = errno;
    }
    if (error != 0) unlink(temporary.c_str());
  }
  return error == 0 ? absl::OkStatus()
                    : cannot(std::generic_category().message(error));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ClusterSession>> ClusterSession::Start(
    Context& context, Cancellation& cancellation, const ClusterOptions& options,
    CoordinatorWatch watch) {
  std::unique_ptr<ClusterSession> session(
      new ClusterSession(context, cancellation, options));
  const Placement& placement = options.placement;
  const auto ports = ParsePortRange(options.ports);
  if (!ports.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--ports (PSRING_PORTS): ", ports.status().message()));
  }
  context.UsePorts(*ports);
  if (absl::Status s = session->AwaitNames(); !s.ok()) return s;
  auto address =
      ChooseAdvertised({.advertise = options.advertise,
                        .interface = options.interface,
                        .coordinator_host = placement.coordinator.host,
                        // Without a key, no stranger may reach it.
                        .reachable = options.security.secret.has_value()});
  if (!address.ok()) return address.status();
  session->address_ = *address;
  for (const std::string& warning : placement.warnings) {
    LogWarning("$0", warning);
  }
  LogInfo("$0; address $1 ($2)", placement.summary, address->address,
          address->reason);
  if (absl::Status s = session->Secure(); !s.ok()) return s;
  if (placement.hosts_coordinator) {
    absl::Status s = session->HostCoordinator(std::move(watch));
    if (!s.ok()) return s;
  } else {
    auto host = Resolve(placement.coordinator.host);
    if (!host.ok()) return host.status();
    session->coordinator_endpoint_ = absl::StrCat(
        "tcp://", ToString(HostPort{*host, placement.coordinator.port}));
  }
  return session;
}

absl::Status ClusterSession::AwaitNames() {
  const Placement& placement = options_.placement;
  const HostPort& named = placement.coordinator;
  if (!InPod() || named.host.empty() || IsNumericAddress(named.host)) {
    return absl::OkStatus();
  }
  const Time deadline = Now() + options_.join_timeout;
  const absl::Status status =
      placement.hosts_coordinator
          ? AwaitOwnName(named.host, deadline, cancellation_)
          : AwaitListener(named, deadline, cancellation_);
  // What is left of it is for joining.
  options_.join_timeout = std::max(absl::Seconds(1), deadline - Now());
  return status;
}

absl::Status ClusterSession::Secure() {
  const Security& security = options_.security;
  std::string listens = address();
  if (options_.placement.hosts_coordinator) {
    const auto host = Resolve(options_.placement.coordinator.host);
    if (host.ok() && !IsLoopback(*host)) listens = *host;
  }
  if (absl::Status s = CheckListening(security, listens); !s.ok()) return s;
  if (security.secret.has_value()) {
    LogInfo("all messages are encrypted, with $0", security.source);
  } else if (!security.insecure && options_.placement.hosts_coordinator &&
             options_.placement.num_workers + options_.placement.num_servers >
                 1) {
    LogInfo(
        "this job has no key, so other users of this host can join it: "
        "`psring keygen` makes one");
  }
  return context_.Protect(security.secret);
}

absl::Status ClusterSession::HostCoordinator(CoordinatorWatch watch) {
  const Placement& placement = options_.placement;
  MembershipOptions membership;
  membership.mode = options_.mode;
  membership.num_servers = placement.num_servers;
  membership.num_workers = placement.num_workers;
  membership.join_timeout = options_.join_timeout;
  membership.heartbeat_timeout = options_.heartbeat_timeout;
  const std::string& name = placement.coordinator.host;
  if (IsLoopbackName(name) && IsLoopback(address())) {
    LogWarning(
        "the coordinator's host, $0, is a loopback address on this host (see "
        "/etc/hosts), which processes on other hosts cannot reach. For them, "
        "give this process --advertise=ADDRESS (advertise= in Python), or name "
        "the host by an address that others reach",
        name);
  }
  const auto where = WhereToListen(placement.coordinator, address());
  if (!where.ok()) return where.status();
  auto coordinator = Coordinator::Start(context_, where->at, membership,
                                        std::move(watch), where->also);
  if (!coordinator.ok()) return coordinator.status();
  coordinator_ = *std::move(coordinator);
  coordinator_endpoint_ = coordinator_->endpoint();
  LogInfo("coordinator listens on $0, waits for $1 and $2",
          coordinator_endpoint_, Counted(placement.num_servers, "server"),
          Counted(placement.num_workers, "worker"));
  if (options_.coordinator_port_file.empty()) return absl::OkStatus();
  return WritePortFile(options_.coordinator_port_file, coordinator_endpoint_);
}

MemberOptions ClusterSession::Introduction() const {
  const Placement& placement = options_.placement;
  MemberOptions options;
  options.coordinator = coordinator_endpoint_;
  options.join_timeout = options_.join_timeout;
  options.heartbeat_timeout = options_.heartbeat_timeout;
  options.on_hang = options_.on_hang;
  proto::Join& join = options.join;
  join.set_role(placement.role);
  join.set_mode(options_.mode);
  join.set_wanted_rank(placement.rank);
  join.set_host(options_.host);
  join.set_boot(Fnv().Add(BootId()).value());
  join.set_pid(getpid());
  join.set_address(address());
  join.set_hosts_coordinator(placement.hosts_coordinator);
  join.set_num_servers(placement.num_servers);
  join.set_num_workers(placement.num_workers);
  join.set_progress_timeout_ms(
      absl::ToInt64Milliseconds(options_.progress_timeout));
  return options;
}

void ClusterSession::Decline(const absl::Status& why) {
  MemberOptions options = Introduction();
  options.join.set_failure(Printable(why.message(), kMaxFailureBytes));
  options.join_timeout = kDeclineTimeout;
  // Its error is the one that this process told.
  Member::Join(context_, cancellation_, options).status().IgnoreError();
}

absl::Status ClusterSession::Join() {
  auto member = Member::Join(context_, cancellation_, Introduction());
  if (!member.ok()) return member.status();
  member_ = *std::move(member);
  return absl::OkStatus();
}

}  // namespace psring
