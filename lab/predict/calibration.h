// Hardware figures from measured exchanges: pure arithmetic on the simulators.
#ifndef PSRING_LAB_PREDICT_CALIBRATION_H_
#define PSRING_LAB_PREDICT_CALIBRATION_H_

#include <cstdint>

#include "absl/types/span.h"
#include "lab/predict/scenario.h"

namespace psring {

// An exchange that `psring bench` has measured: nobody computes.
struct MeasuredExchange {
  Topology topology;
  int64_t bytes = 0;       // that each worker handed in
  double seconds = 0;      // the median
  double cpu_seconds = 0;  // of all processes, in one exchange
};

// The buckets in which bench's ranks exchange so many bytes: a ring's in one
// piece, which is only summed, others in buckets of the default size.
Workload ExchangeWorkload(TopologyKind kind, int64_t bytes);

// Makes hardware.link_bytes_per_s what `measured` got through its links, rather
// than what a stream in one direction gets; at most a fifth less or a twentieth
// more than before, as what lies outside has other reasons.
void CalibrateLink(const MeasuredExchange& measured, Hardware* hardware);

// The cores' time for a byte between hosts: the (lower) median over `measured`.
// For hosts that share `cores`; nothing changes where no processor time is
// known.
void CalibrateCores(absl::Span<const MeasuredExchange> measured, int cores,
                    Hardware* hardware);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_CALIBRATION_H_
