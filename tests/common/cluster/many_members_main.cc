// Prints what jobs of the given numbers of members cost their coordinators:
//   bazel run //tests/common/cluster:many_members -- 64 256 1024
#include <cstdio>
#include <cstdlib>
#include <string>

#include "tests/common/cluster/many_members.h"

int main(int argc, char** argv) {
  std::printf("%8s %12s %12s %10s\n", "members", "CPU time/ms", "memory/MiB",
              "wall/ms");
  for (int i = 1; i < argc; ++i) {
    const int members = std::atoi(argv[i]);
    const auto cost = psring::RunManyMembers(members);
    if (!cost.ok()) {
      std::fprintf(stderr, "%d members: %s\n", members,
                   std::string(cost.status().message()).c_str());
      return 1;
    }
    std::printf("%8d %12.0f %12.1f %10.0f\n", members,
                absl::ToDoubleMilliseconds(cost->cpu),
                static_cast<double>(cost->peak_memory_bytes) / (1 << 20),
                absl::ToDoubleMilliseconds(cost->wall));
  }
  return 0;
}
