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

// Seconds of `exchange`, by the simulators.
double PredictExchange(const Hardware& hardware,
                       const MeasuredExchange& exchange);

// Makes hardware.link_bytes_per_s what `measured` got through its links, rather
// than what a stream in one direction gets; at most a fifth less or a twentieth
// more than before, as what lies outside has other reasons.
void CalibrateLink(const MeasuredExchange& measured, Hardware* hardware);

// The cores' time for a byte between hosts: the (lower) median over what
// `measured` has of 1 MB and more. For hosts that share `cores`; nothing
// changes where no processor time is known.
void CalibrateCores(absl::Span<const MeasuredExchange> measured, int cores,
                    Hardware* hardware);

// Fits three figures to the times of `measured`, small exchanges: the latency
// of a hop in a ring (to 10 ms), that of a hop between a worker and a server
// (the same), and the cores' time for a message (1 us to 0.3 ms), which both
// share. The squares of the errors' logarithms are least in sum. Without an
// exchange of a kind, its latency stays. For hosts that share `cores`.
// (Processor time does not tell a message's cost: waiting threads stay awake
// for a while.)
void CalibrateMessages(absl::Span<const MeasuredExchange> measured, int cores,
                       Hardware* ring, Hardware* ps);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_CALIBRATION_H_
