#include "lab/predict/closed_forms.h"

#include <algorithm>

namespace psring {

double RingSeconds(const Hardware& hardware, double bytes, int workers) {
  const double hops = 2.0 * (workers - 1);
  return hops * hardware.latency_s +
         hops / workers * bytes / hardware.link_bytes_per_s;
}

double PsSeconds(const Hardware& hardware, double bytes, int workers,
                 int servers) {
  const double load = std::max(1.0, static_cast<double>(workers) / servers);
  return 2 * hardware.latency_s + load * bytes / hardware.link_bytes_per_s;
}

double ColocatedPsSeconds(const Hardware& hardware, double bytes, int workers,
                          int spare_hosts) {
  const double servers = workers + spare_hosts;
  const double load = (servers + workers - 2) / servers;
  return 2 * hardware.latency_s + load * bytes / hardware.link_bytes_per_s;
}

}  // namespace psring
