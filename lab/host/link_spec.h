// What `psring compare --link` says: every process on a host of its own, with
// links of these rates.
//
//   1gbit             every host's link
//   worker:1:100mbit  that worker's host; the others' are fast
#ifndef PSRING_LAB_HOST_LINK_SPEC_H_
#define PSRING_LAB_HOST_LINK_SPEC_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace psring {

struct LinkSpec {
  // "Fast": far above what one machine's processes send each other.
  static constexpr double kFastBitsPerS = 10e9;

  int worker = -1;  // -1: every host
  double bits_per_s = kFastBitsPerS;

  // The rates of the hosts of so many workers, by rank, then of the servers.
  std::vector<double> RatesOf(int workers, int servers) const;
};

// INVALID_ARGUMENT names the text and what is allowed, or the worker that a job
// of `workers` has not.
absl::StatusOr<LinkSpec> ParseLink(absl::string_view text, int workers);

}  // namespace psring

#endif  // PSRING_LAB_HOST_LINK_SPEC_H_
