#include "collectives/flow_plan.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace psring {
namespace {

using proto::CollectiveCall;

int64_t ElementBytes(const Call& call) {
  return SizeOf(static_cast<DType>(call.what.dtype()));
}

int64_t TotalBytes(const Call& call) {
  return call.what.count() * ElementBytes(call);
}

bool OneRound(const Call& call) { return TotalBytes(call) <= kOneRoundBytes; }

bool DirectBroadcast(const Call& call) {
  return call.what.count() <= kDirectBroadcastBytes || call.size() == 2;
}

int RootIndex(const Call& call) {
  return static_cast<int>(
      std::lower_bound(call.set.begin(), call.set.end(), call.what.root()) -
      call.set.begin());
}

// The bytes of a broadcast that rank `index`, not the root, gets from the root.
Range PartOf(const Call& call, int index) {
  const int among_others = index - (index > RootIndex(call) ? 1 : 0);
  return NearEqualPart({0, call.what.count()}, call.size() - 1, among_others);
}

Outflow FlowTo(int to, uint32_t round, const char* data, Range bytes) {
  const int64_t size = bytes.size();
  const char* const from = size > 0 ? data + bytes.begin : nullptr;
  return {to, round, from, size, round == 0 ? size : 0};
}

Range InBytes(const Call& call, Range elements) {
  const int64_t unit = ElementBytes(call);
  return {elements.begin * unit, elements.end * unit};
}

// Which bytes of in rank `to` gets from this one in round 0.
Range FirstRound(const Call& call, int to, absl::Span<const Range> slices) {
  switch (call.what.operation()) {
    case CollectiveCall::ALLREDUCE:
      if (OneRound(call)) return {0, TotalBytes(call)};
      return InBytes(call, slices[to]);
    case CollectiveCall::REDUCESCATTER:
      return InBytes(call, slices[to]);
    case CollectiveCall::ALLGATHER:
      return {0, call.bytes[0]};
    case CollectiveCall::ALLTOALL: {
      int64_t begin = 0;
      for (int i = 0; i < to; ++i) begin += call.bytes[i];
      return {begin, begin + call.bytes[to]};
    }
    case CollectiveCall::BROADCAST:
      if (call.index != RootIndex(call)) return {};
      if (DirectBroadcast(call)) return {0, call.what.count()};
      return PartOf(call, to);
    default:
      return {};
  }
}

std::vector<Range> SlicesIfAny(const Call& call) {
  const bool sums = call.what.operation() == CollectiveCall::ALLREDUCE ||
                    call.what.operation() == CollectiveCall::REDUCESCATTER;
  return sums ? SlicesOf(call.what, call.size()) : std::vector<Range>();
}

// What this rank sends to others in round 1, of `out`.
Range SecondRound(const Call& call, absl::Span<const Range> slices) {
  if (call.what.operation() == CollectiveCall::ALLREDUCE && !OneRound(call)) {
    return InBytes(call, slices[call.index]);
  }
  if (call.what.operation() == CollectiveCall::BROADCAST &&
      !DirectBroadcast(call) && call.index != RootIndex(call)) {
    return PartOf(call, call.index);
  }
  return {};
}

absl::Status MakeRoom(const Call& call, absl::Span<const int64_t> bytes,
                      Gathered& gathered) {
  gathered.sizes.assign(bytes.begin(), bytes.end());
  int64_t total = 0;
  for (const int64_t size : bytes) total += size;
  if (call.out != nullptr && call.out_bytes == total) return absl::OkStatus();
  gathered.bytes.reset(new (std::nothrow) char[static_cast<size_t>(total)]);
  if (gathered.bytes != nullptr) return absl::OkStatus();
  const auto most = std::max_element(bytes.begin(), bytes.end());
  return absl::ResourceExhaustedError(absl::StrCat(
      Describe(call), ": rank ", call.set[most - bytes.begin()], " brings ",
      *most, " of ", total,
      " bytes, for which there is no memory: let ranks bring less at a time"));
}

// Into the gathered bytes, by rank.
absl::StatusOr<std::vector<Inflow>> PlanGathered(
    const Call& call, absl::Span<const int64_t> bytes, Gathered& gathered) {
  if (absl::Status s = MakeRoom(call, bytes, gathered); !s.ok()) return s;
  std::vector<Inflow> flows;
  char* place = gathered.bytes == nullptr ? call.out : gathered.bytes.get();
  for (int i = 0; i < call.size(); ++i) {
    if (i != call.index) {
      flows.push_back({i, 0, bytes[i], place});
    } else if (bytes[i] > 0) {
      const Range own = FirstRound(call, i, {});
      std::memmove(place, call.in + own.begin, static_cast<size_t>(bytes[i]));
    }
    place += bytes[i];
  }
  return flows;
}

std::vector<Inflow> PlanBroadcast(const Call& call) {
  std::vector<Inflow> flows;
  const int root = RootIndex(call);
  for (int i = 0; i < call.size(); ++i) {
    if (i == call.index) continue;
    if (call.index == root || (DirectBroadcast(call) && i != root)) {
      flows.push_back({i, 0, 0, call.out});
    } else if (DirectBroadcast(call)) {
      flows.push_back({i, 0, call.what.count(), call.out});
    } else {
      const Range part = PartOf(call, i == root ? call.index : i);
      char* const place = call.out + part.begin;
      if (i != root) flows.push_back({i, 0, 0, call.out});
      flows.push_back({i, i == root ? 0u : 1u, part.size(), place, i == root});
    }
  }
  return flows;
}

std::vector<Inflow> PlanReduced(const Call& call) {
  std::vector<Inflow> flows;
  const std::vector<Range> slices = SlicesOf(call.what, call.size());
  const int64_t operand = InBytes(call, PlanSum(call).range).size();
  const bool two_rounds =
      call.what.operation() == CollectiveCall::ALLREDUCE && !OneRound(call);
  for (int i = 0; i < call.size(); ++i) {
    if (i == call.index) continue;
    flows.push_back({i, 0, operand, nullptr});
    const Range sum = InBytes(call, slices[i]);
    if (!two_rounds || sum.empty()) continue;
    flows.push_back({i, 1, sum.size(), call.out + sum.begin});
  }
  return flows;
}

}  // namespace

std::vector<Outflow> PlanOutflows(const Call& call) {
  std::vector<Outflow> flows;
  const std::vector<Range> slices = SlicesIfAny(call);
  const Range second = SecondRound(call, slices);
  // From the next rank on, so that not all begin with the same one.
  for (int i = 1; i < call.size(); ++i) {
    const int to = (call.index + i) % call.size();
    flows.push_back(FlowTo(to, 0, call.in, FirstRound(call, to, slices)));
  }
  for (int i = 1; i < call.size() && !second.empty(); ++i) {
    const int to = (call.index + i) % call.size();
    const bool has_it = call.what.operation() == CollectiveCall::BROADCAST &&
                        to == RootIndex(call);
    if (!has_it) flows.push_back(FlowTo(to, 1, call.out, second));
  }
  return flows;
}

int64_t BytesFrom(const Call& call, int from) {
  switch (call.what.operation()) {
    case CollectiveCall::ALLREDUCE:
    case CollectiveCall::REDUCESCATTER:
      return InBytes(call, PlanSum(call).range).size();
    case CollectiveCall::BROADCAST: {
      const int root = RootIndex(call);
      if (from != root || call.index == root) return 0;
      if (DirectBroadcast(call)) return call.what.count();
      return PartOf(call, call.index).size();
    }
    case CollectiveCall::BARRIER:
      return 0;
    default:
      return -1;
  }
}

absl::StatusOr<std::vector<Inflow>> PlanInflows(const Call& call,
                                                absl::Span<const int64_t> bytes,
                                                Gathered& gathered) {
  switch (call.what.operation()) {
    case CollectiveCall::ALLGATHER:
    case CollectiveCall::ALLTOALL:
      return PlanGathered(call, bytes, gathered);
    case CollectiveCall::BROADCAST:
      return PlanBroadcast(call);
    case CollectiveCall::ALLREDUCE:
    case CollectiveCall::REDUCESCATTER:
      return PlanReduced(call);
    default: {
      std::vector<Inflow> flows;
      for (int i = 0; i < call.size(); ++i) {
        if (i != call.index) flows.push_back({i, 0, 0, nullptr});
      }
      return flows;
    }
  }
}

OwnSum PlanSum(const Call& call) {
  OwnSum sum;
  sum.slices = SlicesIfAny(call);
  if (sum.slices.empty()) return sum;
  const bool all =
      call.what.operation() == CollectiveCall::ALLREDUCE && OneRound(call);
  sum.range = all ? Range{0, call.what.count()} : sum.slices[call.index];
  if (sum.range.empty()) return sum;
  const int64_t begin = InBytes(call, sum.range).begin;
  sum.operand = call.in + begin;
  // A reducescatter's result is its slice alone.
  const bool whole = call.what.operation() == CollectiveCall::ALLREDUCE;
  sum.out = call.out + (whole ? begin : 0);
  return sum;
}

}  // namespace psring
