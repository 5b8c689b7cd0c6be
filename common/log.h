// What a process tells its user on standard error, a line each, with the time.
//
//   LogInfo("worker $0 of $1 computes on $2", rank, workers, device);
//
// Formats are absl::Substitute's. The library below, spdlog, stays behind
// log.cc: its templates take a compiler four seconds in each file that logs.
#ifndef PSRING_COMMON_LOG_H_
#define PSRING_COMMON_LOG_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/strings/substitute.h"

namespace psring {

enum class LogLevel { kDebug, kInfo, kWarning, kCritical };

// From now on the process logs what is at least as severe as `level`: the
// library's names, of which "off" is one; to a terminal in colours. Before,
// all but debug is logged. Any thread may call what follows at any time.
void SetUpLog(const std::string& level);

// Where the reader of the log has stopped, a process waits for it for a second,
// and then drops lines until it reads again; a line then says how many.
void Log(LogLevel level, absl::string_view line);
// The same of lines without a time, whatever the level: of a program that ends,
// or answers its user.
void LogBare(absl::string_view lines);
// Returns when all lines are written, or dropped.
void FlushLog();

template <typename... Args>
void LogDebug(absl::string_view format, const Args&... args) {
  Log(LogLevel::kDebug, absl::Substitute(format, args...));
}

template <typename... Args>
void LogInfo(absl::string_view format, const Args&... args) {
  Log(LogLevel::kInfo, absl::Substitute(format, args...));
}

// Something is wrong that ends nothing.
template <typename... Args>
void LogWarning(absl::string_view format, const Args&... args) {
  Log(LogLevel::kWarning, absl::Substitute(format, args...));
}

}  // namespace psring

#endif  // PSRING_COMMON_LOG_H_
