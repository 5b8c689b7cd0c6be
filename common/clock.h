// The only door to time. Deadlines, intervals and timelines are of the
// monotonic clock, which nobody sets: neither an administrator nor NTP makes a
// healthy job miss a deadline. Only what people read as a date comes from
// WallNow.
#ifndef PSRING_COMMON_CLOCK_H_
#define PSRING_COMMON_CLOCK_H_

#include <chrono>
#include <compare>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace psring {

// A moment of this host's monotonic clock. A type of its own, so that no date
// can take its place. Not comparable with another host's.
class Time {
 public:
  constexpr Time() = default;  // the clock's zero, before every moment

  static constexpr Time InfiniteFuture() {
    return Time(absl::InfiniteDuration());
  }
  static constexpr Time InfinitePast() {
    return Time(-absl::InfiniteDuration());
  }
  static constexpr Time FromNanos(int64_t since_zero) {
    return Time(absl::Nanoseconds(since_zero));
  }
  int64_t nanos() const { return absl::ToInt64Nanoseconds(since_zero_); }
  std::chrono::steady_clock::time_point chrono() const {
    return std::chrono::steady_clock::time_point(
        absl::ToChronoNanoseconds(since_zero_));
  }

  Time& operator+=(absl::Duration d) {
    since_zero_ += d;
    return *this;
  }
  friend Time operator+(Time t, absl::Duration d) { return t += d; }
  friend Time operator-(Time t, absl::Duration d) { return t += -d; }
  friend absl::Duration operator-(Time a, Time b) {
    return a.since_zero_ - b.since_zero_;
  }
  friend bool operator==(Time a, Time b) = default;
  friend std::strong_ordering operator<=>(Time a, Time b) {
    if (a == b) return std::strong_ordering::equal;
    return a.since_zero_ < b.since_zero_ ? std::strong_ordering::less
                                         : std::strong_ordering::greater;
  }

 private:
  explicit constexpr Time(absl::Duration since_zero)
      : since_zero_(since_zero) {}

  absl::Duration since_zero_;
};

// Nanoseconds of the monotonic clock, for what is recorded many times a second.
inline int64_t NowNanos() {
  return std::chrono::steady_clock::now().time_since_epoch() /
         std::chrono::nanoseconds(1);
}

inline Time Now() { return Time::FromNanos(NowNanos()); }

// A date, for people: it may jump.
inline absl::Time WallNow() { return absl::Now(); }

}  // namespace psring

#endif  // PSRING_COMMON_CLOCK_H_
