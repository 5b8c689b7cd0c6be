// The arithmetic that bit-identical results need on every thread: IEEE 754's,
// rounding to nearest, with subnormal numbers.
//
// A thread takes over the modes of the one that has started it, and a script
// may have changed those: torch.set_flush_denormal(True), or a library linked
// with -ffast-math. A parameter server's modes are another process's.
#ifndef PSRING_COMMON_FLOATING_POINT_H_
#define PSRING_COMMON_FLOATING_POINT_H_

#include <cfenv>

namespace psring {

// For a thread of the library's own, which begins with it.
inline void UseStandardFloatingPoint() { std::fesetenv(FE_DFL_ENV); }

// For what a caller's thread computes: its modes return at the end.
class StandardFloatingPoint {
 public:
  StandardFloatingPoint() {
    std::fegetenv(&before_);
    UseStandardFloatingPoint();
  }
  ~StandardFloatingPoint() { std::fesetenv(&before_); }
  StandardFloatingPoint(const StandardFloatingPoint&) = delete;
  StandardFloatingPoint& operator=(const StandardFloatingPoint&) = delete;

 private:
  std::fenv_t before_;
};

}  // namespace psring

#endif  // PSRING_COMMON_FLOATING_POINT_H_
