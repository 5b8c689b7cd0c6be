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

// Makes hardware.latency_s what explains the time of `measured`, a small
// exchange; from 1 us to 10 ms.
void CalibrateLatency(const MeasuredExchange& measured, Hardware* hardware);

// The latency that explains the time of `fewer`, and the cores' time for a
// message, up to 1 ms, that explains by how much `more`, in which there are
// more messages of as many bytes in all, took longer. For hosts that share
// `cores`. (Processor time does not tell it: waiting threads stay awake for a
// while.)
void CalibrateMessages(const MeasuredExchange& fewer,
                       const MeasuredExchange& more, int cores,
                       Hardware* hardware);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_CALIBRATION_H_
