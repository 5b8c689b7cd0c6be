// How many threads and processes there may be.
#ifndef PSRING_COMMON_PROCESS_THREAD_LIMIT_H_
#define PSRING_COMMON_PROCESS_THREAD_LIMIT_H_

#include <string>
#include <system_error>

namespace psring {

// The remedy where fork or a thread's start ends with EAGAIN.
inline constexpr char kRaiseProcessLimit[] =
    "Raise the limit of processes (ulimit -u, or the container's)";

// What std::thread has thrown, with the remedy.
std::string CannotStartThread(const std::system_error& error);

// From now on, a thread that cannot be started ends this program with one
// error and exit code 1, wherever that happens. Call it first thing in main.
void EndWhereNoThreadStarts(const std::string& program);

}  // namespace psring

#endif  // PSRING_COMMON_PROCESS_THREAD_LIMIT_H_
