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
  return ProcessorTime{(ticks[0] + ticks[1] + ticks[2] + ticks[7]) * tick,
                       (ticks[3] + ticks[4]) * tick,
                       (ticks[5] + ticks[6]) * tick};
}

double CoresOfOthers(const ProcessorTime& host, absl::Duration own,
                     absl::Duration took) {
  const absl::Duration all = host.busy + host.idle + host.interrupts;
  if (took <= absl::ZeroDuration() || host.idle > kLeftIdle * all) return 0;
  return std::max(0.0, absl::FDivDuration(host.busy - own, took));
}

OtherLoad::OtherLoad()
    : before_(TimeOfHost()), own_before_(OwnTime()), start_(Now()) {}

std::optional<double> OtherLoad::Cores() const {
  const auto now = TimeOfHost();
  if (!before_ || !now) return std::nullopt;
  return CoresOfOthers({now->busy - before_->busy, now->idle - before_->idle,
                        now->interrupts - before_->interrupts},
                       OwnTime() - own_before_, Now() - start_);
}

}  // namespace psring
