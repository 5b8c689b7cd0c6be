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

double ColocatedPsSeconds(const Hardware& hardware, double bytes, int workers) {
  const double load = 2.0 * (workers - 1) / workers;
  return 2 * hardware.latency_s + load * bytes / hardware.link_bytes_per_s;
}

double BestColocatedShare(int workers, int spare_hosts) {
  const double n = workers;
  const double k = spare_hosts;
  return k >= n ? 0 : n * (n - k) / (n * n + k * n - 2 * k);
}

double SpareServerSeconds(const Hardware& hardware, double bytes, int workers,
                          int spare_hosts) {
  const double n = workers;
  const double k = spare_hosts;
  const double load = k >= n ? 1 : 2 * n * (n - 1) / (n * n + k * n - 2 * k);
  return 2 * hardware.latency_s + load * bytes / hardware.link_bytes_per_s;
}

}  // namespace psring
