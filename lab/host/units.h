// Sizes, rates and times, as people write them. Decimal: 1 KB is 1000 bytes.
#ifndef PSRING_LAB_HOST_UNITS_H_
#define PSRING_LAB_HOST_UNITS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace psring {

// "1KB", "2.5MB", "1 GB", "400" (bytes), rounded down to whole float32s.
// INVALID_ARGUMENT says what is allowed; so does less than one float.
absl::StatusOr<int64_t> ParseSize(absl::string_view text);
// "1KB,1MB"; at least one.
absl::StatusOr<std::vector<int64_t>> ParseSizes(absl::string_view text);

// "100mbit", "1gbit", "2.5gbit", in bits a second, at least 1 Mbit/s.
absl::StatusOr<double> ParseRate(absl::string_view text);

// "1,2,4", each from `low` to `high`.
absl::StatusOr<std::vector<int>> ParseNumbers(absl::string_view text, int low,
                                              int high);

std::string FormatSize(int64_t bytes);            // "1 KB", "25.6 MB"
std::string FormatBandwidth(double bytes_per_s);  // "1.25 GB/s"
std::string FormatLinkRate(double bits_per_s);    // "953 Mbit/s"
std::string FormatTime(double seconds);           // "12.3 us", "1.20 ms"

}  // namespace psring

#endif  // PSRING_LAB_HOST_UNITS_H_
