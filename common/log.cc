#include "common/log.h"

#include <unistd.h>

#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/colours.h"
#include "common/try_writer.h"
#include "spdlog/sinks/base_sink.h"
#include "spdlog/spdlog.h"

namespace psring {
namespace {

// How long a process waits for whoever reads its log, before it drops lines: no
// job shall stand still because somebody has stopped a pager or a terminal.
constexpr absl::Duration kPatience = absl::Seconds(1);

// Standard error, in colours where it takes them.
class StandardError : public spdlog::sinks::base_sink<std::mutex> {
 public:
  void WriteBare(absl::string_view text) {
    std::lock_guard<std::mutex> lock(mutex_);
    Write(text);
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    const absl::string_view line(text.data(), text.size());
    const size_t begin = message.color_range_start;
    const size_t end = message.color_range_end;
    if (!coloured_ || end <= begin) return Write(line);
    Write(absl::StrCat(line.substr(0, begin), ColourOf(message.level),
                       line.substr(begin, end - begin), kNoColour,
                       line.substr(end)));
  }
  void flush_() override {}

 private:
  static constexpr char kNoColour[] = "\033[m";

  static const char* ColourOf(spdlog::level::level_enum level) {
    switch (level) {
      case spdlog::level::info:
        return "\033[32m";
      case spdlog::level::warn:
        return "\033[33m\033[1m";
      case spdlog::level::critical:
        return "\033[1m\033[41m";
      default:
        return "\033[36m";
    }
  }

  void Write(absl::string_view text) {
    if (num_dropped_ > 0) {
      if (!writer_.Await(absl::ZeroDuration())) return Drop();
      const std::string note =
          absl::StrCat(within_line_ ? "\n" : "", "[", num_dropped_,
                       " lines are missing here: nobody has read them]\n");
      const bool within_line = std::exchange(within_line_, false);
      if (!WriteAll(note, absl::ZeroDuration())) {
        within_line_ |= within_line;
        return Drop();
      }
      num_dropped_ = 0;
    }
    if (!WriteAll(text, kPatience)) Drop();
  }

  void Drop() { ++num_dropped_; }

  bool WriteAll(absl::string_view text, absl::Duration patience) {
    while (!text.empty()) {
      const ssize_t n = writer_.Write(text);
      if (n < 0) return true;  // nobody will ever read it
      within_line_ |= n > 0;
      text.remove_prefix(static_cast<size_t>(n));
      if (!text.empty() && n == 0 && !writer_.Await(patience)) return false;
    }
    within_line_ = false;
    return true;
  }

  const bool coloured_ = TakesColours(stderr);
  TryWriter writer_{STDERR_FILENO};
  int64_t num_dropped_ = 0;   // lines, since the last that was written
  bool within_line_ = false;  // of which the rest was dropped
};

// Never destroyed: threads log until the process is gone.
const std::shared_ptr<StandardError>& TheStandardError() {
  static const auto& sink =
      *new std::shared_ptr<StandardError>(std::make_shared<StandardError>());
  return sink;
}

}  // namespace

void SetUpLog(const std::string& level) {
  auto log = spdlog::get("psring");
  if (log == nullptr) {
    log = std::make_shared<spdlog::logger>("psring", TheStandardError());
    spdlog::register_logger(log);
  }
  log->set_pattern("%Y-%m-%d %H:%M:%S.%e %^%l%$ %v");
  log->set_level(spdlog::level::from_str(level));
  spdlog::set_default_logger(log);
}

void Log(LogLevel level, absl::string_view line) {
  constexpr spdlog::level::level_enum kLevels[] = {
      spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
      spdlog::level::critical};
  spdlog::default_logger_raw()->log(
      kLevels[static_cast<int>(level)],
      spdlog::string_view_t(line.data(), line.size()));
}

void LogBare(absl::string_view lines) { TheStandardError()->WriteBare(lines); }

void FlushLog() { spdlog::default_logger()->flush(); }

}  // namespace psring
