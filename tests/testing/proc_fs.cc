#include "tests/testing/proc_fs.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace psring {
namespace {

namespace fs = std::filesystem;

std::string Slurp(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// "12345" of every "socket:[12345]" that the process holds.
std::set<std::string> SocketInodes(pid_t pid) {
  std::set<std::string> inodes;
  std::error_code error;
  const std::string folder = absl::StrCat("/proc/", pid, "/fd");
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string target = fs::read_symlink(entry.path(), error);
    if (target.rfind("socket:[", 0) == 0) {
      inodes.insert(target.substr(8, target.size() - 9));
    }
  }
  return inodes;
}

// What follows the command's name, which may hold anything: "S 17 ..." with
// the state and the parent.
std::string StatOf(pid_t pid) {
  const std::string stat = Slurp(absl::StrCat("/proc/", pid, "/stat"));
  const size_t end = stat.rfind(") ");
  return end == std::string::npos ? "" : stat.substr(end + 2);
}

}  // namespace

std::vector<int> ListeningPorts(pid_t pid) {
  const std::set<std::string> inodes = SocketInodes(pid);
  std::vector<int> ports;
  for (const char* table : {"tcp", "tcp6"}) {
    std::istringstream lines(
        Slurp(absl::StrCat("/proc/", pid, "/net/", table)));
    std::string line;
    while (std::getline(lines, line)) {
      std::istringstream words(line);
      std::string slot, local, remote, state, queues, timer, retransmits, uid,
          timeout, inode;
      words >> slot >> local >> remote >> state >> queues >> timer >>
          retransmits >> uid >> timeout >> inode;
      if (state != "0A" || !inodes.contains(inode)) continue;  // TCP_LISTEN
      ports.push_back(
          std::stoi(local.substr(local.rfind(':') + 1), nullptr, 16));
    }
  }
  std::sort(ports.begin(), ports.end());
  return ports;
}

std::set<std::string> SharedMemoryOf(pid_t pid) {
  std::set<std::string> inodes;
  std::istringstream lines(Slurp(absl::StrCat("/proc/", pid, "/maps")));
  std::string line;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string addresses, access, offset, device, inode, path;
    words >> addresses >> access >> offset >> device >> inode >> path;
    if (path.rfind("/memfd:", 0) == 0) inodes.insert(inode);
  }
  return inodes;
}

std::vector<pid_t> AllProcesses() {
  std::vector<pid_t> all;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    pid_t pid = 0;
    if (absl::SimpleAtoi(entry.path().filename().string(), &pid) &&
        IsAlive(pid)) {
      all.push_back(pid);
    }
  }
  return all;
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::vector<pid_t> children;
  for (const pid_t child : AllProcesses()) {
    std::istringstream stat(StatOf(child));
    std::string state;
    pid_t parent = 0;
    stat >> state >> parent;
    if (parent == pid) children.push_back(child);
  }
  return children;
}

std::string CommandLine(pid_t pid) {
  std::string line = Slurp(absl::StrCat("/proc/", pid, "/cmdline"));
  std::replace(line.begin(), line.end(), '\0', ' ');
  return line;
}

pid_t ChildWith(pid_t parent, const std::string& program,
                const std::string& flag) {
  for (pid_t child : ChildrenOf(parent)) {
    const std::string line = CommandLine(child);
    if (absl::StrContains(line, program) && absl::StrContains(line, flag)) {
      return child;
    }
  }
  return 0;
}

bool IsAlive(pid_t pid) {
  const std::string stat = StatOf(pid);
  return !stat.empty() && stat[0] != 'Z';
}

}  // namespace psring
