// How fast bytes go from one host to the next: a plain TCP stream. How fast a
// small message comes back: there and back on the same stream.
#ifndef PSRING_LAB_BENCH_LINK_H_
#define PSRING_LAB_BENCH_LINK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "lab/bench/rank_job.h"

namespace psring {

struct LinkOptions {
  int windows = 20;                                 // that are timed
  absl::Duration window = absl::Milliseconds(20);   // each, at least
  absl::Duration warmup = absl::Milliseconds(200);  // before them
  int round_trips = 200;                            // of 1 KB
  std::string out;                                  // folder
};

// Rank after rank streams to the next one (the last to the first), while the
// others are idle; with two ranks both directions are measured that way. First
// it sends 1 KB, which the receiver sends back, again and again. The
// receiver compares what comes during the warm-up with what must come, times
// windows afterwards, says when it has enough, and holds its number of bytes
// against the sender's. Writes OUT/link-FROM.json from the receiving rank:
//   {"from": 0, "to": 1, "seconds": [...], "bytes": [...],
//    "round_trips": [seconds of each]}
absl::Status MeasureLinks(RankJob& job, const LinkOptions& options);

}  // namespace psring

#endif  // PSRING_LAB_BENCH_LINK_H_
