// How busy other programs keep this host while something is measured on it.
#ifndef PSRING_LAB_HOST_OTHER_LOAD_H_
#define PSRING_LAB_HOST_OTHER_LOAD_H_

#include <istream>
#include <optional>

#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

// The processors' time, all of them together, since the host started.
struct ProcessorTime {
  absl::Duration busy;  // of programs, and what a hypervisor took ("steal")
  absl::Duration idle;
  absl::Duration interrupts;  // which belong to nobody
};

// Of the text of /proc/stat; nothing where that is another system's.
std::optional<ProcessorTime> ParseProcStat(std::istream& text);

// Of a core that others have kept busy: more has lengthened what was measured.
inline constexpr double kMuchOtherLoad = 0.1;

// How many cores others have kept busy on average for `took`, in which the
// host's time grew by `host` and that of one's own programs by `own`; 0 where a
// tenth of the processors' time was left idle, as they held nobody up.
double CoresOfOthers(const ProcessorTime& host, absl::Duration own,
                     absl::Duration took);

// One thread's own.
class OtherLoad {
 public:
  // Counts from now on.
  OtherLoad();

  // CoresOfOthers than this process and the children that it has awaited.
  // Nothing where the host does not tell.
  std::optional<double> Cores() const;

 private:
  std::optional<ProcessorTime> before_;
  absl::Duration own_before_;
  Time start_;
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_OTHER_LOAD_H_
