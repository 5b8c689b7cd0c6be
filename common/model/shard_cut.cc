#include "common/model/shard_cut.h"

#include <algorithm>
#include <numeric>

#include "absl/algorithm/container.h"

namespace psring {
namespace {

constexpr int64_t kLeastElements = 2048;         // 8 KiB
constexpr int64_t kMostLeastElements = 1 << 18;  // 1 MiB
// Parts of a server that are at least as large as need be: the more there are,
// the more equal are the servers' sums of them.
constexpr int64_t kPartsOfAServer = 32;

// One for every `least` elements that are there or begun: 1 to `most`.
int PartsFor(int64_t elements, int64_t least, int most) {
  return static_cast<int>(std::clamp<int64_t>((elements + least - 1) / least, 1,
                                              std::max(most, 1)));
}

// `range` lies behind all of `ranges`, or touches the last.
void Append(Range range, Ranges& ranges) {
  if (range.empty()) return;
  if (!ranges.empty() && ranges.back().end == range.begin) {
    ranges.back().end = range.end;
  } else {
    ranges.push_back(range);
  }
}

// Each of `buckets`, which are in backward order, in near-equal parts
// (PartsFor). The largest of them go to those of `owners` who have the least so
// far.
std::vector<Ranges> CutEach(absl::Span<const Range> buckets, int owners,
                            int64_t least) {
  std::vector<std::vector<Range>> parts(owners);
  std::vector<int64_t> sizes(owners, 0);
  std::vector<int> order(owners);
  std::iota(order.begin(), order.end(), 0);
  for (const Range& bucket : buckets) {
    const int n = PartsFor(bucket.size(), least, owners);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return sizes[a] != sizes[b] ? sizes[a] < sizes[b] : a < b;
    });
    for (int c = 0; c < std::min(n, owners); ++c) {
      const Range part = NearEqualPart(bucket, n, c);
      parts[order[c]].push_back(part);
      sizes[order[c]] += part.size();
    }
  }
  std::vector<Ranges> cut(owners);
  for (int i = 0; i < owners; ++i) {
    std::reverse(parts[i].begin(), parts[i].end());
    for (const Range& part : parts[i]) Append(part, cut[i]);
  }
  return cut;
}

}  // namespace

int64_t TotalSize(absl::Span<const Range> ranges) {
  int64_t size = 0;
  for (const Range& range : ranges) size += range.size();
  return size;
}

int64_t SizeWithin(absl::Span<const Range> ranges, Range bucket) {
  auto range = std::partition_point(
      ranges.begin(), ranges.end(),
      [&](const Range& r) { return r.end <= bucket.begin; });
  int64_t size = 0;
  for (; range != ranges.end() && range->begin < bucket.end; ++range) {
    size += Intersect(*range, bucket).size();
  }
  return size;
}

std::vector<Ranges> CutAmongServers(absl::Span<const Range> buckets,
                                    int servers) {
  const int64_t least =
      std::clamp(TotalSize(buckets) / std::max(servers, 1) / kPartsOfAServer,
                 kLeastElements, kMostLeastElements);
  return CutEach(buckets, servers, least);
}

int ServersFor(absl::Span<const Range> buckets, int servers) {
  const std::vector<Ranges> cut = CutAmongServers(buckets, servers);
  return static_cast<int>(
      absl::c_count_if(cut, [](const Ranges& part) { return !part.empty(); }));
}

std::vector<Ranges> CutAmongThreads(const Ranges& part,
                                    absl::Span<const Range> buckets,
                                    int threads) {
  std::vector<Range> parts;
  for (const Range& bucket : buckets) {
    for (auto range = part.rbegin(); range != part.rend(); ++range) {
      const Range both = Intersect(*range, bucket);
      if (!both.empty()) parts.push_back(both);
    }
  }
  return CutEach(parts, threads, kPieceElements);
}

}  // namespace psring
