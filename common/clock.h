// The only door to time. Deadlines, intervals and timelines are of the
// process's clock: the monotonic one, which nobody sets, so that neither an
// administrator nor NTP makes a healthy job miss a deadline. It stands still
// while the process is stopped (SIGSTOP, a batch system that suspends the job,
// a virtual machine that is moved), as that process can do and hear nothing
// then: a stop of 2 s or more is found by a thread that looks at the clock
// every 250 ms. Only what people read as a date comes from WallNow.
#ifndef PSRING_COMMON_CLOCK_H_
#define PSRING_COMMON_CLOCK_H_

#include <chrono>
#include <compare>
#include <cstdint>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace psring {

// A moment of this process's clock. A type of its own, so that no date can take
// its place. Not comparable with another process's.
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
  // The same by the monotonic clock, unless the process is stopped until then.
  std::chrono::steady_clock::time_point chrono() const;

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

// Nanoseconds of the process's clock, for what is recorded many times a second.
int64_t NowNanos();

// Nanoseconds of the host's monotonic clock, which goes on meanwhile.
int64_t MonotonicNanos();

// For how long the process has been stopped, all in all, as far as was found.
absl::Duration TimeStopped();

// Where the last of these stops lies: what was read before it is less.
Time LastStop();

inline Time Now() { return Time::FromNanos(NowNanos()); }

inline std::chrono::steady_clock::time_point Time::chrono() const {
  return std::chrono::steady_clock::time_point(
      absl::ToChronoNanoseconds(since_zero_ + TimeStopped()));
}

// A date, for people: it may jump.
inline absl::Time WallNow() { return absl::Now(); }

}  // namespace psring

#endif  // PSRING_COMMON_CLOCK_H_
