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

// A server on every worker's host: the ring's bytes in 2 hops.
double ColocatedPsSeconds(const Hardware& hardware, double bytes, int workers);

// With n workers' hosts that have a server each and k hosts that have nothing
// but a server: the part of the model that all n hold in the best split, and
// its time: each of
// the n sends and gets M - m + (n-1)m for its m bytes, each of the k gets and
// sends n bytes for one of its own; the best split makes both equal, 2n(n-1) /
// (n^2 + kn - 2k) * M/B. With k >= n the n hold nothing (BytePS: Jiang et al.,
// OSDI 2020, section 4.1).
double BestColocatedShare(int workers, int spare_hosts);
double SpareServerSeconds(const Hardware& hardware, double bytes, int workers,
                          int spare_hosts);

}  // namespace psring

#endif  // PSRING_LAB_PREDICT_CLOSED_FORMS_H_
