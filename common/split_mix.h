// A small integer generator whose sequence is the same on every machine.
#ifndef PSRING_COMMON_SPLIT_MIX_H_
#define PSRING_COMMON_SPLIT_MIX_H_

#include <cstdint>

namespace psring {

// SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
// generators"). A plain value: copies continue independently.
class SplitMix64 {
 public:
  explicit SplitMix64(uint64_t seed) : state_(seed) {}

  uint64_t Next() {
    state_ += 0x9e3779b97f4a7c15;
    uint64_t z = state_;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return z ^ (z >> 31);
  }

  // A generator of its own for part `key` of what this one generates.
  SplitMix64 Fork(uint64_t key) const {
    SplitMix64 keyed(state_ ^ (key * 0xd1342543de82ef95));
    return SplitMix64(keyed.Next());
  }

  // [0, n); n must be far below 2^64, for the modulo's bias to be nothing.
  int64_t Below(int64_t n) { return static_cast<int64_t>(Next() % n); }

  // [low, high), in steps of (high - low) / 2^53.
  double Uniform(double low, double high) {
    constexpr double kUnit = 1.0 / (int64_t{1} << 53);
    return low + (high - low) * (static_cast<double>(Next() >> 11) * kUnit);
  }

  // Mean 0, variance 1, within +-3.5: a sum of four uniforms in place of a
  // normal, which would need logarithms, whose last bit depends on the machine.
  double Bell() {
    double sum = 0;
    for (int i = 0; i < 4; ++i) sum += Uniform(-0.5, 0.5);
    constexpr double kSqrt3 = 1.7320508075688772;
    return sum * kSqrt3;
  }

 private:
  uint64_t state_;
};

}  // namespace psring

#endif  // PSRING_COMMON_SPLIT_MIX_H_
