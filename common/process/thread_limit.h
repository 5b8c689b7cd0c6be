// How many threads and processes there may be, and how a program ends that is
// given too little.
#ifndef PSRING_COMMON_PROCESS_THREAD_LIMIT_H_
#define PSRING_COMMON_PROCESS_THREAD_LIMIT_H_

#include <string>
#include <system_error>

#include "absl/status/status.h"

namespace psring {

// The remedy where fork or a thread's start ends with EAGAIN.
inline constexpr char kRaiseProcessLimit[] =
    "Raise the limit of processes (ulimit -u, or the container's)";

// Whether it is that of a thread which the system does not give.
bool IsOfNoThread(const std::system_error& error);

// What to say of it, with the remedy.
std::string CannotStartThread(const std::system_error& error);

// Calls `body`, which returns a Status or a StatusOr. RESOURCE_EXHAUSTED where
// a thread that it starts cannot be had.
template <typename Body>
auto CatchNoThread(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const std::system_error& error) {
    if (!IsOfNoThread(error)) throw;
    return absl::ResourceExhaustedError(CannotStartThread(error));
  }
}

// The remedy where there is no memory.
inline constexpr char kRaiseMemoryLimit[] =
    "Raise the limit of memory (ulimit -v, or the container's), or use a host "
    "with more";

// From now on, a thread that cannot be started, or memory that nobody catches
// the want of, ends this program with one error and exit code 1, wherever that
// happens. Call it first thing in main.
void EndWhereNoThreadStarts(const std::string& program);

}  // namespace psring

#endif  // PSRING_COMMON_PROCESS_THREAD_LIMIT_H_
