// What this process says in its log.
#ifndef PSRING_TESTS_TESTING_CAPTURED_LOG_H_
#define PSRING_TESTS_TESTING_CAPTURED_LOG_H_

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "spdlog/sinks/ringbuffer_sink.h"
#include "spdlog/spdlog.h"

namespace psring {

// Keeps the last thousand lines of spdlog's default logger, of all threads,
// while it lives. Nobody may log while it is made or destroyed.
class CapturedLog {
 public:
  CapturedLog() { spdlog::default_logger()->sinks().push_back(sink_); }
  ~CapturedLog() { spdlog::default_logger()->sinks().pop_back(); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  // Lines that contain `text`.
  int Count(const std::string& text) const {
    const std::vector<std::string> lines = sink_->last_formatted();
    return static_cast<int>(
        std::count_if(lines.begin(), lines.end(), [&](const std::string& line) {
          return absl::StrContains(line, text);
        }));
  }

 private:
  const std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> sink_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(1000);
};

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_CAPTURED_LOG_H_
