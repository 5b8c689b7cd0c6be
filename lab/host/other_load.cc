#include "lab/host/other_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

namespace psring {
namespace {

constexpr double kLeftIdle = 0.1;

std::optional<ProcessorTime> TimeOfHost() {
  std::ifstream stat("/proc/stat");
  return ParseProcStat(stat);
}

absl::Duration TimeOf(int who) {
  rusage usage = {};
  getrusage(who, &usage);
  return absl::DurationFromTimeval(usage.ru_utime) +
         absl::DurationFromTimeval(usage.ru_stime);
}

absl::Duration OwnTime() {
  return TimeOf(RUSAGE_SELF) + TimeOf(RUSAGE_CHILDREN);
}

}  // namespace

std::optional<ProcessorTime> ParseProcStat(std::istream& text) {
  std::string name;
  // user, nice, system, idle, iowait, irq, softirq, steal: see proc(5).
  std::array<double, 8> ticks = {};
  if (!(text >> name) || name != "cpu") return std::nullopt;
  for (double& tick : ticks) {
    if (!(text >> tick)) return std::nullopt;
  }
  const absl::Duration tick =
      absl::Seconds(1) / std::max(1L, sysconf(_SC_CLK_TCK));
  const double idle = ticks[3] + ticks[4];
  double all = 0;
  for (const double each : ticks) all += each;
  return ProcessorTime{(all - idle) * tick, idle * tick};
}

OtherLoad::OtherLoad()
    : before_(TimeOfHost()), own_before_(OwnTime()), start_(Now()) {}

std::optional<double> OtherLoad::Cores() const {
  const auto now = TimeOfHost();
  const absl::Duration took = Now() - start_;
  if (!before_ || !now || took <= absl::ZeroDuration()) return std::nullopt;
  const absl::Duration busy = now->busy - before_->busy;
  const absl::Duration idle = now->idle - before_->idle;
  if (idle > kLeftIdle * (busy + idle)) return 0;
  const absl::Duration others = busy - (OwnTime() - own_before_);
  return std::max(0.0, absl::FDivDuration(others, took));
}

}  // namespace psring
