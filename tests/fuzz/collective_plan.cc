#include "tests/fuzz/collective_plan.h"

#include <algorithm>
#include <cstring>

#include "collectives/dtype.h"

namespace psring::fuzz {
namespace {

using proto::CollectiveCall;

constexpr int64_t kSizes[] = {0, 1, 17, 4000, 9000, 40000, 600000, 1300000};
constexpr int64_t kUnit = sizeof(int32_t);  // what is summed

// What a rank brings, whatever it is for.
std::string BytesOf(int rank, int64_t size) {
  static const std::string all = [] {
    std::string bytes(kMostBytes + kRanks, '\0');
    for (size_t i = 0; i < bytes.size(); ++i) {
      bytes[i] = static_cast<char>(i % 251);
    }
    return bytes;
  }();
  return all.substr(rank, size);
}

// The sums of all ranks' elements.
std::string SumsOf(int64_t begin, int64_t end) {
  static const std::string all = [] {
    std::string sums(kMostBytes, '\0');
    const std::string brought[] = {
        BytesOf(0, kMostBytes), BytesOf(1, kMostBytes), BytesOf(2, kMostBytes)};
    for (int64_t i = 0; i + kUnit <= kMostBytes; i += kUnit) {
      uint32_t sum = 0;
      for (const std::string& bytes : brought) {
        uint32_t value = 0;
        std::memcpy(&value, &bytes[i], kUnit);
        sum += value;
      }
      std::memcpy(&sums[i], &sum, kUnit);
    }
    return sums;
  }();
  return all.substr(begin * kUnit, (end - begin) * kUnit);
}

}  // namespace

int64_t SomeSize(Bytes& input) { return kSizes[input.Below(8)]; }

bool CollectivePlan::in_place() const {
  return over_input || what.operation() == CollectiveCall::BROADCAST;
}

std::string CollectivePlan::Brings(int rank) const {
  switch (what.operation()) {
    case CollectiveCall::ALLREDUCE:
    case CollectiveCall::REDUCESCATTER:
      return BytesOf(rank, what.count() * kUnit);
    case CollectiveCall::BROADCAST:
      if (rank == what.root()) return BytesOf(rank, what.count());
      return std::string(what.count(), '\0');
    case CollectiveCall::ALLGATHER:
    case CollectiveCall::ALLTOALL: {
      std::string all;
      for (const int64_t size : bytes[rank]) all += BytesOf(rank, size);
      return all;
    }
    default:
      return "";
  }
}

std::string CollectivePlan::Gets(int rank) const {
  switch (what.operation()) {
    case CollectiveCall::ALLREDUCE:
      return SumsOf(0, what.count());
    case CollectiveCall::REDUCESCATTER: {
      int64_t begin = 0;
      for (int i = 0; i < rank; ++i) begin += what.counts(i);
      return SumsOf(begin, begin + what.counts(rank));
    }
    case CollectiveCall::BROADCAST:
      return BytesOf(what.root(), what.count());
    case CollectiveCall::ALLGATHER:
    case CollectiveCall::ALLTOALL: {
      std::string all;
      const std::vector<int64_t> sizes = SizesFor(rank);
      for (int from = 0; from < kRanks; ++from) {
        all += BytesOf(from, sizes[from]);
      }
      return all;
    }
    default:
      return "";
  }
}

std::vector<int64_t> CollectivePlan::SizesFor(int rank) const {
  const bool to_each = what.operation() == CollectiveCall::ALLTOALL;
  std::vector<int64_t> sizes;
  for (const auto& brought : bytes)
    sizes.push_back(brought[to_each ? rank : 0]);
  return sizes;
}

CollectivePlan SomePlan(Bytes& input) {
  CollectivePlan plan;
  CollectiveCall& what = plan.what;
  what.set_operation(
      static_cast<CollectiveCall::Operation>(1 + input.Below(6)));
  const int64_t size = SomeSize(input) + input.Below(4);
  const int64_t count = size / kUnit;
  switch (what.operation()) {
    case CollectiveCall::ALLREDUCE:
      plan.over_input = input.Flag();
      break;
    case CollectiveCall::REDUCESCATTER: {
      const int64_t first = count * input.Below(8) / 8;
      const int64_t second = (count - first) * input.Below(8) / 8;
      for (const int64_t part : {first, second, count - first - second}) {
        what.add_counts(part);
      }
      break;
    }
    case CollectiveCall::BROADCAST:
      what.set_count(size);
      what.set_root(input.Below(kRanks));
      break;
    case CollectiveCall::ALLGATHER:
    case CollectiveCall::ALLTOALL: {
      const bool to_each = what.operation() == CollectiveCall::ALLTOALL;
      for (int from = 0; from < kRanks; ++from) {
        std::vector<int64_t>& brought = plan.bytes.emplace_back();
        for (int to = 0; to < (to_each ? kRanks : 1); ++to) {
          const int64_t most = to_each ? kMostBytes / kRanks : kMostBytes;
          brought.push_back(std::min(SomeSize(input), most));
        }
      }
      break;
    }
    default:
      break;
  }
  if (what.operation() == CollectiveCall::ALLREDUCE ||
      what.operation() == CollectiveCall::REDUCESCATTER) {
    what.set_dtype(static_cast<uint32_t>(DType::kInt32));
    what.set_count(count);
    what.set_prescale(1);
    what.set_postscale(1);
  }
  return plan;
}

}  // namespace psring::fuzz
