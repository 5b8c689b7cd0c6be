#include "ring/segments.h"

#include <algorithm>

namespace psring {
namespace {

int Mod(int value, int n) { return (value % n + n) % n; }

}  // namespace

int SliceReceived(RingPhase phase, int rank, int n, int hop) {
  return Mod(rank - (phase == RingPhase::kReduceScatter ? 2 : 1) - hop, n);
}

int FirstSliceSent(RingPhase phase, int rank, int n) {
  return Mod(rank - (phase == RingPhase::kReduceScatter ? 1 : 0), n);
}

std::vector<Range> SegmentsOf(Range slice, int64_t max_elements) {
  std::vector<Range> segments;
  for (int64_t begin = slice.begin; begin < slice.end; begin += max_elements) {
    segments.push_back({begin, std::min(begin + max_elements, slice.end)});
  }
  return segments;
}

}  // namespace psring
