// Random bits as a number, the same with every standard library: the
// distributions of <random> differ from one to the next.
#ifndef PSRING_COMMON_UNIFORM_H_
#define PSRING_COMMON_UNIFORM_H_

#include <cstdint>

namespace psring {

// In [0, 1), of the 53 upper bits.
inline double Uniform(uint64_t bits) {
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace psring

#endif  // PSRING_COMMON_UNIFORM_H_
