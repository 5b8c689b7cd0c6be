#include "lab/host/link_shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace psring {
namespace {

// Two frames, so that a link is never without a token for the next one.
constexpr int64_t kLeastBurstBytes = 3200;
// A packet takes at most so long to make up for, unless it is shorter than
// kLeastPacketBytes, as each costs processor time.
constexpr double kPacketSeconds = 2.56e-3;
constexpr int64_t kLeastPacketBytes = 16'000;
constexpr int64_t kMostPacketBytes = 65'536;  // the kernel's own limit
constexpr double kQueueSeconds = 50e-3;

}  // namespace

LinkShape ShapeOf(double bits_per_s) {
  const double bytes_per_s = bits_per_s / 8;
  const auto bytes_in = [&](double seconds) {
    return static_cast<int64_t>(bytes_per_s * seconds);
  };
  LinkShape shape;
  shape.burst_bytes =
      std::max(kLeastBurstBytes, bytes_in(LinkShape::kBurstSeconds));
  shape.packet_bytes =
      std::clamp(bytes_in(kPacketSeconds), kLeastPacketBytes, kMostPacketBytes);
  shape.queue_bytes = bytes_in(kQueueSeconds) + kMostPacketBytes;
  return shape;
}

std::vector<std::string> ShapeCommands(double bits_per_s,
                                       absl::string_view device) {
  const LinkShape shape = ShapeOf(bits_per_s);
  return {absl::StrCat("ip link set dev ", device, " gso_max_size ",
                       shape.packet_bytes),
          absl::StrCat("tc qdisc add dev ", device,
                       " root handle 1: htb default 1"),
          absl::StrFormat("tc class add dev %s parent 1: classid 1:1 htb rate "
                          "%.0fbit burst %d cburst %d quantum %d",
                          device, bits_per_s, shape.burst_bytes,
                          shape.burst_bytes, kMostPacketBytes),
          absl::StrCat("tc qdisc add dev ", device, " parent 1:1 bfifo limit ",
                       shape.queue_bytes)};
}

}  // namespace psring
