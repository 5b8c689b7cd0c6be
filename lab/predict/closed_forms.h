// What the exchange of M bytes takes at the least, by formula: n workers, S
// servers, links of B bytes a second in each direction, a latency of a.
#ifndef PSRING_LAB_PREDICT_CLOSED_FORMS_H_
#define PSRING_LAB_PREDICT_CLOSED_FORMS_H_

#include "lab/predict/scenario.h"

namespace psring {

// 2(n-1)a + 2(n-1)/n * M/B (Patarasuk & Yuan, 2009).
double RingSeconds(const Hardware& hardware, double bytes, int workers);

// Servers on hosts of their own; pushes and answers fill both directions:
// 2a + max(M/B, nM/(SB)).
double PsSeconds(const Hardware& hardware, double bytes, int workers,
                 int servers);

// A server on every worker's host and on `spare_hosts` more, each with an equal
// part of the model. A worker's host pushes the parts of the other n+k-1
// servers and answers n-1 workers with its own: 2a + (2n+k-2)/(n+k) * M/B, the
// ring's bytes where k is 0.
double ColocatedPsSeconds(const Hardware& hardware, double bytes, int workers,
                          int spare_hosts = 0);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_CLOSED_FORMS_H_
