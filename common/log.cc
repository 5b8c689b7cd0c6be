#include "common/log.h"

#include "spdlog/sinks/stdout_color_sinks.h"
#include "spdlog/spdlog.h"

namespace psring {

void SetUpLog(const std::string& level) {
  auto log = spdlog::get("psring");
  if (log == nullptr) log = spdlog::stderr_color_mt("psring");
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

void FlushLog() { spdlog::default_logger()->flush(); }

}  // namespace psring
