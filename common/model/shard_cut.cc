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

// As many parts as hold `least` elements each, the last one fewer: 1 to `most`.
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

}  // namespace

int64_t TotalSize(absl::Span<const Range> ranges) {
  int64_t size = 0;
  for (const Range& range : ranges) size += range.size();
  return size;
}

// A bucket's largest parts go to those who have the least so far.
std::vector<Ranges> CutAmongServers(absl::Span<const Range> buckets,
                                    int servers) {
  std::vector<std::vector<Range>> parts(servers);
  std::vector<int64_t> sizes(servers, 0);
  std::vector<int> order(servers);
  std::iota(order.begin(), order.end(), 0);
  const int64_t least =
      std::clamp(TotalSize(buckets) / std::max(servers, 1) / kPartsOfAServer,
                 kLeastElements, kMostLeastElements);
  for (const Range& bucket : buckets) {
    const int n = PartsFor(bucket.size(), least, servers);
    std::sort(order.begin(), order.end(), [&](int a, int b) {
      return sizes[a] != sizes[b] ? sizes[a] < sizes[b] : a < b;
    });
    for (int c = 0; c < std::min(n, servers); ++c) {
      const Range part = NearEqualPart(bucket, n, c);
      parts[order[c]].push_back(part);
      sizes[order[c]] += part.size();
    }
  }
  std::vector<Ranges> cut(servers);
  for (int s = 0; s < servers; ++s) {
    std::reverse(parts[s].begin(), parts[s].end());
    for (const Range& part : parts[s]) Append(part, cut[s]);
  }
  return cut;
}

int ServersFor(absl::Span<const Range> buckets, int servers) {
  const std::vector<Ranges> cut = CutAmongServers(buckets, servers);
  return static_cast<int>(
      absl::c_count_if(cut, [](const Ranges& part) { return !part.empty(); }));
}

int ShardThreadsFor(int64_t elements, int threads) {
  return PartsFor(elements, kPieceElements, threads);
}

std::vector<Ranges> CutAmongThreads(const Ranges& part, int threads) {
  std::vector<Ranges> cut(threads);
  const Range all{0, TotalSize(part)};
  const int n = ShardThreadsFor(all.size(), threads);
  for (int t = 0; t < std::min(n, threads); ++t) {
    const Range mine = NearEqualPart(all, n, t);
    int64_t before = 0;
    for (const Range& range : part) {
      const Range of_range = Intersect({before, before + range.size()}, mine);
      const int64_t shift = range.begin - before;
      Append({of_range.begin + shift, of_range.end + shift}, cut[t]);
      before += range.size();
    }
  }
  return cut;
}

}  // namespace psring
