// What this host is made of.
#ifndef PSRING_LAB_HOST_MACHINE_H_
#define PSRING_LAB_HOST_MACHINE_H_

#include <cstdint>
#include <string>

namespace psring {

struct Machine {
  int cores = 1;    // that this process may run on
  std::string cpu;  // its model's name
  int64_t memory_bytes = 0;
  std::string system;  // "Linux 6.1.0, x86_64"
};

Machine DescribeMachine();

}  // namespace psring

#endif  // PSRING_LAB_HOST_MACHINE_H_
