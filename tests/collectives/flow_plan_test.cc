#include "collectives/flow_plan.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "collectives/call.h"
#include "common/model/layout.h"

namespace psring {
namespace {

using proto::CollectiveCall;

Call CallOf(CollectiveCall::Operation operation, int size, int index,
            int64_t count, char* data) {
  Call call;
  call.name = "x";
  for (int rank = 0; rank < size; ++rank) call.set.push_back(rank);
  call.index = index;
  call.what.set_operation(operation);
  call.what.set_count(count);
  call.what.set_dtype(static_cast<uint32_t>(DType::kUint8));
  call.what.set_root(1 % size);
  call.bytes.assign(size, 10 + index);
  call.in = call.out = data;
  for (int c = 0; c < size; ++c) {
    if (operation != CollectiveCall::REDUCESCATTER) break;
    call.what.add_counts(c + 1 < size ? 0 : count);
  }
  return call;
}

constexpr CollectiveCall::Operation kAll[] = {
    CollectiveCall::ALLREDUCE,     CollectiveCall::ALLGATHER,
    CollectiveCall::BROADCAST,     CollectiveCall::ALLTOALL,
    CollectiveCall::REDUCESCATTER, CollectiveCall::BARRIER};

// Nobody waits for bytes that nobody sends, or the other way round.
// Others name them where they differ from theirs.
TEST(CheckCall, TypesAreThoseThatThereAre) {
  proto::CollectiveCall call;
  call.set_operation(proto::CollectiveCall::ALLGATHER);
  EXPECT_TRUE(CheckCall(call, 2).ok());
  call.set_dtype(1000000);
  EXPECT_FALSE(CheckCall(call, 2).ok());
}

TEST(FlowPlanTest, WhatOneRankSendsIsWhatTheOtherAwaits) {
  std::vector<char> data(1 << 20);
  for (const auto operation : kAll) {
    for (const int size : {1, 2, 3, 5}) {
      for (const int64_t count : {0, 1, 8192, 8193, 65'537, 1'000'000}) {
        std::map<std::pair<int, int>, std::map<uint32_t, int64_t>> sent, due;
        for (int rank = 0; rank < size; ++rank) {
          const Call call = CallOf(operation, size, rank, count, data.data());
          for (const Outflow& flow : PlanOutflows(call)) {
            sent[{rank, flow.to}][flow.round] = flow.size;
          }
        }
        for (int rank = 0; rank < size; ++rank) {
          const Call call = CallOf(operation, size, rank, count, data.data());
          std::vector<int64_t> bytes(size, 10 + rank);
          for (int from = 0; from < size; ++from) {
            if (from != rank) bytes[from] = sent[{from, rank}][0];
            const int64_t announced = from == rank ? -1 : BytesFrom(call, from);
            EXPECT_TRUE(announced < 0 || announced == bytes[from]);
          }
          Gathered gathered;
          const auto flows = PlanInflows(call, bytes, gathered);
          ASSERT_TRUE(flows.ok());
          for (const Inflow& flow : *flows) {
            due[{flow.from, rank}][flow.round] = flow.size;
          }
        }
        EXPECT_EQ(sent, due) << operation << " " << size << " " << count;
      }
    }
  }
}

#ifndef PSRING_SANITIZED  // where so much memory aborts the test
TEST(FlowPlanTest, NamesWhoBringsMoreThanThereIsMemoryFor) {
  char data[20] = {};
  Call call = CallOf(CollectiveCall::ALLGATHER, 3, 0, 10, data);
  call.set = {0, 2, 5};
  Gathered gathered;
  const int64_t huge = int64_t{1} << 60;
  const auto flows = PlanInflows(call, {{10, huge, 10}}, gathered);
  EXPECT_EQ(flows.status(),
            absl::ResourceExhaustedError(
                "allgather 'x': rank 2 brings 1152921504606846976 of "
                "1152921504606846996 bytes, for which there is no memory: let "
                "ranks bring less at a time"));
}
#endif  // PSRING_SANITIZED

// A broadcast of many bytes costs no link more than twice of them.
TEST(FlowPlanTest, ARootSendsNoByteOfMuchTwice) {
  std::vector<char> data(1 << 20);
  for (int rank = 0; rank < 5; ++rank) {
    const Call call =
        CallOf(CollectiveCall::BROADCAST, 5, rank, 1 << 20, data.data());
    int64_t total = 0;
    for (const Outflow& flow : PlanOutflows(call)) total += flow.size;
    EXPECT_LE(total, 1 << 20) << rank;
    EXPECT_TRUE(rank != call.what.root() || total == 1 << 20);
  }
}

// A sum of few bytes is everybody's; else each rank sums its slice.
TEST(FlowPlanTest, SumsSmallOperandsEverywhere) {
  std::vector<char> data(1 << 20);
  const auto own = [&](int64_t count) {
    return PlanSum(CallOf(CollectiveCall::ALLREDUCE, 3, 1, count, data.data()))
        .range;
  };
  EXPECT_EQ(own(kOneRoundBytes), (Range{0, kOneRoundBytes}));
  EXPECT_EQ(own(30'000), NearEqualPart({0, 30'000}, 3, 1));
}

}  // namespace
}  // namespace psring
