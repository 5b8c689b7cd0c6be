// What the predictor says of an exchange between hosts of namespaces.
#ifndef PSRING_LAB_BENCH_PREDICTED_H_
#define PSRING_LAB_BENCH_PREDICTED_H_

#include "lab/bench/limits.h"
#include "lab/bench/results.h"
#include "lab/predict/calibration.h"
#include "lab/predict/scenario.h"

namespace psring {

// Namespaces of this machine, with a link on which a stream got so many bits a
// second.
Hardware HardwareOfHosts(double link_bits_per_s);

// psring's own measurement at this point, which has one.
MeasuredExchange ExchangeOf(const SweepPoint& point, Placement placement);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_PREDICTED_H_
