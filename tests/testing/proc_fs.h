// What /proc tells of processes that a test has not started itself, and of
// their ports.
#ifndef PSRING_TESTS_TESTING_PROC_FS_H_
#define PSRING_TESTS_TESTING_PROC_FS_H_

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

namespace psring {

// The TCP ports (IPv4 or IPv6) that the process listens on, ascending.
std::vector<int> ListeningPorts(pid_t pid);

// The inodes of the memory without a name (memfd_create) that the process has
// mapped, its own and others'.
std::set<std::string> SharedMemoryOf(pid_t pid);

// Every process of this host, dead ones that nobody has asked for left out.
std::vector<pid_t> AllProcesses();

// The processes that `pid` has started and that live.
std::vector<pid_t> ChildrenOf(pid_t pid);

// "worker/worker --rank=1 ..."; empty when there is no such process.
std::string CommandLine(pid_t pid);

// The child whose command line has both texts; 0: none.
pid_t ChildWith(pid_t parent, const std::string& program,
                const std::string& flag);

// False for a zombie too: its parent may not have asked for it yet.
bool IsAlive(pid_t pid);

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_PROC_FS_H_
