#include "tests/testing/two_hosts.h"

#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace psring {
namespace {

absl::Time Soon() { return absl::Now() + absl::Minutes(1); }

std::vector<std::string> Words(const std::string& line) {
  std::istringstream words(line);
  std::vector<std::string> result;
  for (std::string word; words >> word;) result.push_back(word);
  return result;
}

// A process that only keeps its namespace alive.
absl::StatusOr<Process> StartHolder() {
  auto holder = Process::Start(
      {"/usr/bin/unshare", "--net", "/bin/sh", "-c", "echo up; exec sleep 1d"});
  if (!holder.ok()) return holder.status();
  if (holder->WaitForOutput("up", Soon())) return holder;
  return absl::UnavailableError(
      absl::StrCat("no network namespace: ", holder->Output()));
}

}  // namespace

std::string TwoHosts::AddressOf(int host) {
  return absl::StrCat("10.123.0.", host + 1);
}

std::vector<std::string> TwoHosts::On(int host,
                                      std::vector<std::string> argv) const {
  const std::string space =
      absl::StrCat("--net=/proc/", holders_[host].pid(), "/ns/net");
  argv.insert(argv.begin(), {"/usr/bin/nsenter", space});
  return argv;
}

absl::StatusOr<TwoHosts> TwoHosts::Create() {
  auto first = StartHolder();
  if (!first.ok()) return first.status();
  auto second = StartHolder();
  if (!second.ok()) return second.status();
  TwoHosts hosts(*std::move(first), *std::move(second));
  const std::string ip = "/usr/bin/env PATH=/sbin:/usr/sbin:/bin:/usr/bin ip ";
  const std::pair<int, std::string> kCommands[] = {
      {0, absl::StrCat("link add cable type veth peer name cable netns ",
                       hosts.holders_[1].pid())},
      {0, "link set lo up"},
      {1, "link set lo up"},
      {0, absl::StrCat("address add ", AddressOf(0), "/24 dev cable")},
      {1, absl::StrCat("address add ", AddressOf(1), "/24 dev cable")},
      {0, "link set cable up"},
      {1, "link set cable up"},
  };
  for (const auto& [host, command] : kCommands) {
    const Ran ran = RunProcess(hosts.On(host, Words(ip + command)), Soon());
    if (ran.code == 0) continue;
    return absl::UnavailableError(
        absl::StrCat("ip ", command, ": ", ran.output));
  }
  return hosts;
}

}  // namespace psring
