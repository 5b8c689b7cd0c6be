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

//
// A line whose reader has stopped is waited for for a second, then dropped, as
// those after it are until the reader goes on; the next line says how many are
// missing.
void Log(LogLevel level, absl::string_view line);
// The same of lines without a time, whatever the level: of a program that ends,
// or answers its user.
void LogBare(absl::string_view lines);
// Returns when all lines are written.
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
