// FNV-1a, 64 bits (Fowler, Noll and Vo, 1991): equal on all hosts and builds.
#ifndef PSRING_COMMON_FNV_H_
#define PSRING_COMMON_FNV_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace psring {

class Fnv {
 public:
  Fnv& Add(absl::string_view bytes) {
    for (const char c : bytes) AddByte(static_cast<unsigned char>(c));
    return *this;
  }
  // Its 8 bytes, the lowest first.
  Fnv& Add(uint64_t number) {
    for (int i = 0; i < 8; ++i) AddByte((number >> (8 * i)) & 0xff);
    return *this;
  }

  uint64_t value() const { return value_; }

 private:
  void AddByte(uint64_t byte) { value_ = (value_ ^ byte) * 0x100000001b3; }

  uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace psring

#endif  // PSRING_COMMON_FNV_H_
