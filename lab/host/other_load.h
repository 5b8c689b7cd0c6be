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
  absl::Duration busy;  // what a hypervisor took ("steal") counts
  absl::Duration idle;
};

// Of the text of /proc/stat; nothing where that is another system's.
std::optional<ProcessorTime> ParseProcStat(std::istream& text);

// One thread's own.
class OtherLoad {
 public:
  // Counts from now on.
  OtherLoad();

  // How many cores others than this process, and the children that it has
  // awaited, have kept busy on average; 0 where a tenth of the processors' time
  // was left idle, as they held nobody up. Nothing where the host does not
  // tell.
  std::optional<double> Cores() const;

 private:
  std::optional<ProcessorTime> before_;
  absl::Duration own_before_;
  Time start_;
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_OTHER_LOAD_H_
