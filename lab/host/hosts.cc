#include "lab/host/hosts.h"

#include <poll.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "lab/host/capture.h"
#include "lab/host/find_program.h"
#include "lab/host/link_shape.h"

namespace psring {
namespace {

std::string NamespaceOf(const Child& holder, const std::string& kind) {
  return absl::StrCat("/proc/", holder.pid(), "/ns/", kind);
}

// Waits for the line that says that its namespaces are there.
absl::Status AwaitUp(Child& holder) {
  const Time deadline = Now() + absl::Seconds(10);
  bool up = false;
  std::string said;
  const auto on_line = [&](absl::string_view line) {
    up |= line == "up";
    absl::StrAppend(&said, said.empty() ? "" : "; ", line);
  };
  while (!up && Now() < deadline) {
    pollfd fds[] = {{holder.output_fd(), POLLIN, 0},
                    {holder.exit_fd(), POLLIN, 0}};
    poll(fds, 2, 100);
    holder.ReadOutput(on_line);
    holder.CheckEnd(on_line);
    if (holder.ending()) break;
  }
  if (up) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "--hosts, --link: cannot make the namespaces of ", holder.name(), ": ",
      said.empty() ? "unshare says nothing" : said,
      ". They need root on Linux with namespaces, and a container that has "
      "CAP_SYS_ADMIN and CAP_NET_ADMIN (docker run --privileged)"));
}

// unshare kills its child, the namespace's first process, when it dies itself.
absl::StatusOr<std::unique_ptr<Child>> StartHolder(const std::string& name) {
  const auto unshare = FindProgram("unshare");
  if (!unshare) {
    return absl::UnavailableError(
        "--hosts, --link: no unshare on this machine. Remedy: apt-get install "
        "util-linux");
  }
  auto holder = Child::Start(
      {name,
       {*unshare, "--net", "--pid", "--fork", "--mount", "--mount-proc",
        "--kill-child", "/bin/sh", "-c", "echo up; exec sleep infinity"}});
  if (!holder.ok()) return holder.status();
  if (absl::Status s = AwaitUp(**holder); !s.ok()) return s;
  return holder;
}

}  // namespace

absl::Status Hosts::CheckMachine() {
  if (geteuid() != 0) {
    return absl::PermissionDeniedError(
        "--hosts and --link make network namespaces, which needs root. Remedy: "
        "run it with sudo, or without them");
  }
  for (const char* program : {"ip", "tc", "nsenter"}) {
    if (FindProgram(program)) continue;
    return absl::UnavailableError(
        absl::StrCat("--hosts, --link: no ", program,
                     " on this machine. Remedy: apt-get install iproute2 "
                     "util-linux"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Hosts>> Hosts::Create(int count,
                                                     double bits_per_s) {
  return Create(std::vector<double>(count, bits_per_s));
}

absl::StatusOr<std::unique_ptr<Hosts>> Hosts::Create(
    const std::vector<double>& bits_per_s) {
  if (absl::Status s = CheckMachine(); !s.ok()) return s;
  std::unique_ptr<Hosts> hosts(new Hosts());
  absl::Status status = hosts->Start(static_cast<int>(bits_per_s.size()));
  if (status.ok()) status = hosts->Connect(bits_per_s);
  if (!status.ok()) return status;
  return hosts;
}

std::string Hosts::AddressOf(int host) {
  return absl::StrCat("10.124.", (host + 1) / 250, ".", (host + 1) % 250 + 1);
}

absl::Status Hosts::Start(int count) {
  auto network_switch = StartHolder("the switch");
  if (!network_switch.ok()) return network_switch.status();
  switch_ = *std::move(network_switch);
  for (int i = 0; i < count; ++i) {
    auto holder = StartHolder(absl::StrCat("host ", i));
    if (!holder.ok()) return holder.status();
    holders_.push_back(*std::move(holder));
  }
  return absl::OkStatus();
}

// The rate holds for what leaves the host and for what leaves the switch
// towards it, as a full-duplex cable's does. Every host has Linux's own
// congestion control, whatever this machine's default: BBR, with a host's one
// core, gets 5 to 15% less than a link of 2 to 5 Gbit/s.
absl::Status Hosts::Connect(const std::vector<double>& bits_per_s) {
  absl::Status status =
      RunIn(*switch_, "ip link add sw type bridge forward_delay 0");
  status.Update(RunIn(*switch_, "ip link set sw up"));
  for (int i = 0; status.ok() && i < count(); ++i) {
    const Child& host = *holders_[i];
    const std::string port = absl::StrCat("port", i);
    std::vector<std::pair<const Child*, std::string>> commands = {
        {&host,
         absl::StrCat("ip link add ", kInterface, " type veth peer name ", port,
                      " netns ", switch_->pid())},
        {&host, "ip link set lo up"},
        {&host,
         absl::StrCat("ip address add ", AddressOf(i), "/16 dev ", kInterface)},
        {switch_.get(), absl::StrCat("ip link set ", port, " master sw up")},
        {&host, absl::StrCat("ip link set ", kInterface, " up")},
        {&host, absl::StrCat("ip route replace 10.124.0.0/16 dev ", kInterface,
                             " src ", AddressOf(i), " congctl cubic")},
    };
    for (std::string& command : ShapeCommands(bits_per_s[i], kInterface)) {
      commands.emplace_back(&host, std::move(command));
    }
    for (std::string& command : ShapeCommands(bits_per_s[i], port)) {
      commands.emplace_back(switch_.get(), std::move(command));
    }
    for (const auto& [where, command] : commands) {
      status.Update(RunIn(*where, command));
    }
  }
  return status;
}

absl::Status Hosts::RunIn(const Child& holder,
                          const std::string& command) const {
  std::vector<std::string> argv = {
      *FindProgram("nsenter"),
      absl::StrCat("--net=", NamespaceOf(holder, "net"))};
  for (absl::string_view word : absl::StrSplit(command, ' ')) {
    argv.emplace_back(word);
  }
  argv[2] = *FindProgram(argv[2]);
  const auto lines = Capture(argv);
  if (lines.ok()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("--hosts, --link: ", command, " on ", holder.name(), ": ",
                   std::string(lines.status().message())));
}

std::vector<std::string> Hosts::PrefixOf(int host) const {
  const Child& holder = *holders_[host];
  // Who enters a mount namespace stands at its root.
  std::error_code error;
  const std::string here = std::filesystem::current_path(error).string();
  return {*FindProgram("nsenter"),
          absl::StrCat("--net=", NamespaceOf(holder, "net")),
          absl::StrCat("--mount=", NamespaceOf(holder, "mnt")),
          absl::StrCat("--pid=", NamespaceOf(holder, "pid_for_children")),
          // env(1) would take a program with an = in its path for a variable.
          "/bin/sh", "-c", "cd \"$0\" && exec \"$@\"", error ? "/" : here};
}

}  // namespace psring
