#include "lab/bench/predicted.h"

#include <algorithm>

#include "common/host_cores.h"
#include "lab/host/link_shape.h"

namespace psring {

Hardware HardwareOfHosts(double link_bits_per_s) {
  Hardware hardware;
  hardware.link_bytes_per_s = link_bits_per_s / 8;
  hardware.burst_s = LinkShape::kBurstSeconds;
  hardware.shards = std::min(HostCores(), 4);  // as a server's default is
  return hardware;
}

MeasuredExchange ExchangeOf(const SweepPoint& point, Placement placement) {
  const Measurement& ours = point.measurements.front();
  MeasuredExchange exchange;
  exchange.topology.workers = point.ranks;
  if (point.operation == "pushpull") {
    exchange.topology.kind = TopologyKind::kPs;
    exchange.topology.colocated = placement == Placement::kColocated;
    exchange.topology.server_hosts =
        exchange.topology.colocated ? 0 : point.servers;
  }
  exchange.bytes = point.size_bytes;
  exchange.seconds = MedianSeconds(ours);
  exchange.cpu_seconds =
      ours.cpu_seconds / static_cast<double>(ours.seconds.size());
  return exchange;
}

}  // namespace psring
