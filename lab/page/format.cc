#include "lab/page/format.h"

#include <cmath>
#include <cstdint>
#include <iterator>

#include "absl/strings/str_format.h"

namespace psring {
namespace {

// At most two decimals, and three digits from 1 on.
std::string ThreeDigits(double number) {
  const int decimals = number < 9.995 ? 2 : number < 99.95 ? 1 : 0;
  return absl::StrFormat("%.*f", decimals, number);
}

}  // namespace

std::string FormatCount(double number) {
  std::string digits = absl::StrFormat("%.0f", number);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) {
    digits.insert(i, 1, ',');
  }
  return digits;
}

std::string FormatBytes(double bytes) {
  const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(units)) {
    bytes /= 1024;
    ++unit;
  }
  const bool whole = unit == 0 || bytes >= 100;
  return absl::StrFormat("%.*f %s", whole ? 0 : 1, bytes, units[unit]);
}

std::string FormatPercent(double fraction) {
  return absl::StrFormat("%.2f%%", fraction * 100);
}

std::string FormatSeconds(double seconds) {
  if (seconds < 0.9995) return ThreeDigits(seconds * 1e3) + " ms";
  if (seconds < 59.95) return ThreeDigits(seconds) + " s";
  const int64_t whole = std::llround(seconds);
  return absl::StrFormat("%d:%02d min", whole / 60, whole % 60);
}

std::string FormatClock(double seconds) {
  const int64_t s = std::llround(seconds);
  return s >= 3600
             ? absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60)
             : absl::StrFormat("%d:%02d", s / 60, s % 60);
}

std::string FormatTimes(double ratio) {
  return absl::StrFormat("%.*f", ratio < 10 ? 2 : 1, ratio);
}

}  // namespace psring
