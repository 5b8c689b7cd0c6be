#include "common/trace/clock_readings.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "common/cluster/clock_offset.h"

namespace psring {
namespace {

// Half of the shortest stop that a process's clock finds.
constexpr int64_t kLeastJump = 1'000'000'000;

// What `reading` may be wrong by, `sign` times the time away from it left out:
// of two readings only the difference counts.
double WrongBy(const ClockReading& reading, int sign) {
  return static_cast<double>(reading.round_trip_ns) / 2 +
         sign * kClocksApart * static_cast<double>(reading.at_ns);
}

// Without those that one before them, in the order from `first` to `last`,
// knows better.
template <typename Iterator>
Iterator DropWorse(Iterator first, Iterator last, int sign) {
  double least = std::numeric_limits<double>::infinity();
  return std::remove_if(first, last, [&](const ClockReading& reading) {
    const double wrong_by = WrongBy(reading, sign);
    if (wrong_by > least) return true;
    least = wrong_by;
    return false;
  });
}

// Of readings without a jump between them.
std::vector<ClockReading> BestOf(std::vector<ClockReading> readings) {
  readings.erase(DropWorse(readings.begin(), readings.end(), -1),
                 readings.end());
  const auto from = DropWorse(readings.rbegin(), readings.rend(), +1);
  readings.erase(readings.begin(), from.base());
  return readings;
}

}  // namespace

bool IsJump(int64_t ahead_more_ns) {
  return std::abs(ahead_more_ns) > kLeastJump;
}

std::vector<ClockReading> BestReadings(std::vector<ClockReading> readings) {
  std::stable_sort(readings.begin(), readings.end(),
                   [](const ClockReading& a, const ClockReading& b) {
                     return a.at_ns < b.at_ns;
                   });
  std::vector<ClockReading> best;
  for (auto first = readings.begin(); first != readings.end();) {
    const auto jump =
        std::adjacent_find(first, readings.end(),
                           [](const ClockReading& a, const ClockReading& b) {
                             return IsJump(b.ahead_ns - a.ahead_ns);
                           });
    const auto last = jump == readings.end() ? jump : jump + 1;
    std::vector<ClockReading> between = BestOf({first, last});
    if (!best.empty()) between.front().at_ns = first->at_ns;
    best.insert(best.end(), between.begin(), between.end());
    first = last;
  }
  return best;
}

int64_t AheadAt(const std::vector<ClockReading>& readings, int64_t at_ns) {
  const auto after =
      std::upper_bound(readings.begin(), readings.end(), at_ns,
                       [](int64_t at, const ClockReading& reading) {
                         return at < reading.at_ns;
                       });
  if (after == readings.begin()) return after->ahead_ns;
  const ClockReading& before = *(after - 1);
  if (after == readings.end() || IsJump(after->ahead_ns - before.ahead_ns)) {
    return before.ahead_ns;
  }
  const double share = static_cast<double>(at_ns - before.at_ns) /
                       static_cast<double>(after->at_ns - before.at_ns);
  return before.ahead_ns +
         std::llround(share *
                      static_cast<double>(after->ahead_ns - before.ahead_ns));
}

}  // namespace psring
