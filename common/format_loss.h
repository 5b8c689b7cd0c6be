// A loss as people read it.
#ifndef PSRING_COMMON_FORMAT_LOSS_H_
#define PSRING_COMMON_FORMAT_LOSS_H_

#include <cmath>
#include <string>

#include "absl/strings/str_format.h"

namespace psring {

// "0.3125", "3.13e-05": in four decimals, but of a small loss in three digits.
inline std::string FormatLoss(double loss) {
  const bool small = loss != 0 && std::abs(loss) < 0.01;
  return small ? absl::StrFormat("%.3g", loss) : absl::StrFormat("%.4f", loss);
}

}  // namespace psring

#endif  // PSRING_COMMON_FORMAT_LOSS_H_
