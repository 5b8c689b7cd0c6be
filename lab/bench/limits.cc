#include "lab/bench/limits.h"

#include <algorithm>

namespace psring {

double CopySeconds(double seconds, double cpu_seconds, int ranks, int cores) {
  return std::min(seconds, cpu_seconds / std::min(ranks, cores));
}

double AllReduceMemoryLimit(double copy_seconds) { return copy_seconds; }

double PushPullMemoryLimit(double copy_seconds, int ranks, int slots) {
  return copy_seconds * (ranks + 1.0 + slots) / ranks;
}

double AllReduceLinkLoad(int ranks) { return 2.0 * (ranks - 1) / ranks; }

double PushPullLinkLoad(int ranks, int servers, Placement placement) {
  if (placement == Placement::kColocated) return AllReduceLinkLoad(ranks);
  return std::max(1.0, static_cast<double>(ranks) / servers);
}

double LinkLimit(double load, int64_t size_bytes, double bits_per_s) {
  return load * static_cast<double>(size_bytes) * 8 / bits_per_s;
}

}  // namespace psring
