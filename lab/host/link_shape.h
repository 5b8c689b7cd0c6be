// How the kernel is told to hold a host's link to a rate: pure arithmetic and
// text. What was tried instead, and what each costs: docs/performance.md.
//
// An HTB class lets a packet go whenever it has not used up its rate, however
// long the packet is, and makes the next ones wait until the rate has made up
// for it. So the 64 KiB that TCP hands over at once stay one packet all the
// way, with one turn, one timer and one wake-up; TBF cuts what is longer than
// its burst into frames, each with its own. The price is that such a packet
// arrives whole where a cable would still be sending it: on slow links packets
// are shorter.
#ifndef PSRING_LAB_HOST_LINK_SHAPE_H_
#define PSRING_LAB_HOST_LINK_SHAPE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace psring {

struct LinkShape {
  // How far an idle link is ahead of its rate, where that is more than a few
  // frames: what makes up for timers and threads that come late.
  static constexpr double kBurstSeconds = 0.55e-3;

  int64_t burst_bytes = 0;
  // The longest that TCP hands to the link at once.
  int64_t packet_bytes = 0;
  // What may wait for the link; what comes on top is dropped.
  int64_t queue_bytes = 0;
};

// For a link of so many bits a second.
LinkShape ShapeOf(double bits_per_s);

// The commands of tc and ip that hold `device` to the rate in what it sends.
std::vector<std::string> ShapeCommands(double bits_per_s,
                                       absl::string_view device);

}  // namespace psring

#endif  // PSRING_LAB_HOST_LINK_SHAPE_H_
