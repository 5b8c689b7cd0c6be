#include "collectives/collectives.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "collectives/reduction.h"
#include "common/model/layout.h"
#include "common/model/reduce.h"
#include "tests/collectives/test_mesh.h"
#include "tests/testing/sanitized.h"

namespace psring {
namespace {

using Handles = std::vector<absl::StatusOr<int64_t>>;

// Bytes of finite numbers, whatever their type.
std::string Operand(DType dtype, int64_t num_elements, int rank) {
  std::mt19937 random(17 * rank + static_cast<int>(dtype));
  std::string bytes(num_elements * SizeOf(dtype), '\0');
  for (int64_t i = 0; i < num_elements; ++i) {
    const float value = static_cast<int>(random() % 2001 - 1000) / 16.0f;
    const double wide = value / 3.0;
    const float narrow = static_cast<float>(wide);
    uint32_t bits;
    std::memcpy(&bits, &narrow, 4);
    const uint64_t integer = random();
    char* const at = bytes.data() + i * SizeOf(dtype);
    const uint16_t brain = static_cast<uint16_t>(bits >> 16);
    const uint16_t half =
        static_cast<uint16_t>(0x3000 + integer % 0x1800);  // 2^-3 to 2^3
    switch (dtype) {
      case DType::kFloat16:
        std::memcpy(at, &half, 2);
        break;
      case DType::kBfloat16:
        std::memcpy(at, &brain, 2);
        break;
      case DType::kFloat32:
        std::memcpy(at, &narrow, 4);
        break;
      case DType::kFloat64:
        std::memcpy(at, &wide, 8);
        break;
      case DType::kBool:
        *at = static_cast<char>(integer % 2);
        break;
      default:
        std::memcpy(at, &integer, SizeOf(dtype));
    }
  }
  return bytes;
}

// Slice c of all operands begins with rank c + 1.
std::string CanonicalReduction(const Arithmetic& how, int64_t num_elements,
                               const std::vector<std::string>& operands,
                               const std::vector<Range>& slices) {
  const int n = static_cast<int>(operands.size());
  const int64_t unit = SizeOf(how.dtype);
  std::string result(num_elements * unit, '\0');
  for (int c = 0; c < n; ++c) {
    std::vector<const void*> inputs;
    for (int i = 0; i < n; ++i) {
      inputs.push_back(operands[(c + 1 + i) % n].data() +
                       slices[c].begin * unit);
    }
    Reduce(how, inputs, slices[c].size(),
           result.data() + slices[c].begin * unit);
  }
  return result;
}

std::vector<Range> NearEqualSlices(int64_t num_elements, int n) {
  std::vector<Range> slices;
  for (int c = 0; c < n; ++c) {
    slices.push_back(NearEqualPart({0, num_elements}, n, c));
  }
  return slices;
}

struct Ranks {
  int size;
  int num_sharing;  // memory
};

std::vector<Ranks> AllRanks() {
  std::vector<Ranks> all;
  for (const int size : SanitizedUpTo(3, {1, 2, 3, 5})) {
    all.push_back({size, size});
  }
  all.push_back({3, 0});
  all.push_back({3, 2});
  return all;
}

class CollectivesTest : public ::testing::TestWithParam<Ranks> {
 protected:
  int size() const { return GetParam().size; }
  TestMesh mesh_{size(), {}, /*own_threads=*/false, GetParam().num_sharing};

  // In place and not, the same bits everywhere, and those of the order.
  void CheckAllReduce(const Arithmetic& how, int64_t count) {
    const int n = size();
    std::vector<std::string> operands;
    for (int r = 0; r < n; ++r) {
      operands.push_back(Operand(how.dtype, count, r));
    }
    const std::string expected =
        CanonicalReduction(how, count, operands, NearEqualSlices(count, n));
    mesh_.Run([&](int rank, Collectives& collectives) {
      std::string in = operands[rank];
      std::string out(in.size(), 'x');
      const auto apart =
          collectives.AllReduce("apart", in.data(), out.data(), count, how);
      std::string data = in;
      const auto in_place = collectives.AllReduce("in place", data.data(),
                                                  data.data(), count, how);
      EXPECT_EQ(Await(collectives, apart), absl::OkStatus());
      EXPECT_EQ(Await(collectives, in_place), absl::OkStatus());
      EXPECT_TRUE(out == expected)
          << count << " " << NameOf(how.dtype) << " " << NameOf(how.reduction);
      EXPECT_TRUE(data == expected) << count << " " << NameOf(how.dtype);
      EXPECT_TRUE(in == operands[rank]);
    });
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, CollectivesTest,
                         ::testing::ValuesIn(AllRanks()), [](const auto& info) {
                           return absl::StrCat(info.param.size, "_of_which_",
                                               info.param.num_sharing,
                                               "_share_memory");
                         });

TEST_P(CollectivesTest, AllReducesEveryTypeInCanonicalOrder) {
  for (int d = 0; d < kNumDTypes; ++d) {
    for (int r = 0; r < kNumReductions; ++r) {
      const Arithmetic how{static_cast<DType>(d), static_cast<Reduction>(r)};
      if (how.reduction == Reduction::kAverage && !IsFloating(how.dtype)) {
        continue;
      }
      CheckAllReduce(how, 131);
      CheckAllReduce(how, 20'000);
    }
  }
}

TEST_P(CollectivesTest, AllReducesAnyCount) {
  const Arithmetic how{DType::kFloat32, Reduction::kAverage};
  for (const int64_t count :
       {0, 1, 7, 2047, 2048, 2049, 65'537, 1'310'720, 4'000'001}) {
    CheckAllReduce(how, count);
  }
}

TEST_P(CollectivesTest, ScalesBeforeAndAfter) {
  for (const DType dtype :
       {DType::kFloat16, DType::kBfloat16, DType::kFloat32, DType::kFloat64}) {
    CheckAllReduce({dtype, Reduction::kSum, 0.3, 1.7}, 3000);
    CheckAllReduce({dtype, Reduction::kAverage, 3, 0.25}, 10);
  }
}

// Whoever compares topologies relies on it.
TEST_P(CollectivesTest, HasTheBitsOfTheJobsCanonicalSum) {
  const int n = size();
  const int64_t count = 100'003;
  std::vector<std::string> operands;
  std::vector<const void*> inputs;
  for (int r = 0; r < n; ++r) {
    operands.push_back(Operand(DType::kFloat32, count, r));
  }
  for (const std::string& operand : operands) inputs.push_back(operand.data());
  std::vector<float> expected(count);
  CanonicalSum({0, count}, {0, count}, inputs, 1.0f / n, expected.data());
  mesh_.Run([&](int rank, Collectives& collectives) {
    std::vector<float> out(count);
    EXPECT_EQ(
        Await(collectives, collectives.AllReduce(
                               "x", operands[rank].data(), out.data(), count,
                               {DType::kFloat32, Reduction::kAverage})),
        absl::OkStatus());
    EXPECT_EQ(std::memcmp(out.data(), expected.data(), count * 4), 0);
  });
}

TEST_P(CollectivesTest, GathersWhateverEveryRankHas) {
  for (const int64_t unit : {0, 1, 4096, 300'000}) {
    mesh_.Run([&](int rank, Collectives& collectives) {
      const std::string mine(unit * rank, static_cast<char>('a' + rank));
      const auto all = AwaitBytes(
          collectives, collectives.AllGather("x", mine.data(), mine.size()));
      ASSERT_TRUE(all.ok()) << all.status();
      for (int r = 0; r < size(); ++r) {
        EXPECT_TRUE((*all)[r] ==
                    std::string(unit * r, static_cast<char>('a' + r)));
      }
    });
  }
}

TEST_P(CollectivesTest, SendsEachRankItsPart) {
  const int n = size();
  for (const int64_t unit : {0, 3, 500'000}) {
    const auto part = [&](int from, int to) {
      return std::string(unit * (from + 2 * to), 'a' + from * n + to);
    };
    mesh_.Run([&](int rank, Collectives& collectives) {
      std::string in;
      std::vector<int64_t> bytes;
      for (int to = 0; to < n; ++to) {
        in += part(rank, to);
        bytes.push_back(part(rank, to).size());
      }
      const auto all =
          AwaitBytes(collectives, collectives.AllToAll("x", in.data(), bytes));
      ASSERT_TRUE(all.ok()) << all.status();
      for (int from = 0; from < n; ++from) {
        EXPECT_TRUE((*all)[from] == part(from, rank));
      }
    });
  }
}

// Each rank's `size` bytes; the own ones are there already.
TEST_P(CollectivesTest, GathersIntoTheCallersMemory) {
  const int n = size();
  for (const int64_t size : {0, 1, 4096, 3'000'000}) {
    std::string expected;
    for (int r = 0; r < n; ++r) expected += std::string(size, 'a' + r);
    mesh_.Run([&](int rank, Collectives& collectives) {
      std::string out(n * size, 'x');
      char* const mine = out.data() + rank * size;
      std::fill_n(mine, size, 'a' + rank);
      const auto all = collectives.AllGather("x", mine, size, "", {},
                                             {out.data(), n * size});
      EXPECT_EQ(Await(collectives, all), absl::OkStatus());
      EXPECT_EQ(*collectives.Sizes(*all), std::vector<int64_t>(n, size));
      EXPECT_TRUE(out == expected) << size;
      std::string copy(n * size, 'x');
      EXPECT_EQ(collectives.Result(*all, copy.data(), n * size).ok(),
                size == 0);

      // As what comes is not so much.
      const auto apart = AwaitBytes(
          collectives, collectives.AllGather("y", out.data(), size, "", {},
                                             {copy.data(), n * size + 1}));
      ASSERT_TRUE(apart.ok()) << apart.status();
      EXPECT_TRUE((*apart)[n - 1] == std::string(size, 'a'));
    });
  }
}

TEST_P(CollectivesTest, ExchangesIntoTheCallersMemory) {
  const int n = size();
  constexpr int64_t kSize = 400'000;
  mesh_.Run([&](int rank, Collectives& collectives) {
    std::string in, expected, out(n * kSize, 'x');
    for (int r = 0; r < n; ++r) {
      in += std::string(kSize, 'a' + rank * n + r);
      expected += std::string(kSize, 'a' + r * n + rank);
    }
    const std::vector<int64_t> bytes(n, kSize);
    EXPECT_EQ(
        Await(collectives, collectives.AllToAll("x", in.data(), bytes, "", {},
                                                {out.data(), n * kSize})),
        absl::OkStatus());
    EXPECT_TRUE(out == expected);
  });
}

TEST_P(CollectivesTest, BroadcastsFromAnyRoot) {
  for (const int64_t size : {0, 1, 8192, 65'537, 5'000'000}) {
    const std::string expected = Operand(DType::kUint8, size, 3);
    for (int root = 0; root < mesh_.size(); ++root) {
      mesh_.Run([&](int rank, Collectives& collectives) {
        std::string data = rank == root ? expected : std::string(size, 'x');
        EXPECT_EQ(Await(collectives,
                        collectives.Broadcast("x", data.data(), size, root)),
                  absl::OkStatus());
        EXPECT_TRUE(data == expected);
      });
    }
  }
}

TEST_P(CollectivesTest, ScattersAReduction) {
  const int n = size();
  const Arithmetic how{DType::kFloat32, Reduction::kSum, 0.5, 3};
  for (const int64_t unit : {0, 1, 10, 300'000}) {
    std::vector<int64_t> counts;
    std::vector<Range> slices;
    int64_t total = 0;
    for (int r = 0; r < n; ++r) {
      counts.push_back(unit * (r + 1) / 2);
      slices.push_back({total, total + counts[r]});
      total += counts[r];
    }
    std::vector<std::string> operands;
    for (int r = 0; r < n; ++r) {
      operands.push_back(Operand(how.dtype, total, r));
    }
    const std::string expected =
        CanonicalReduction(how, total, operands, slices);
    mesh_.Run([&](int rank, Collectives& collectives) {
      std::string out(counts[rank] * 4, 'x');
      EXPECT_EQ(Await(collectives,
                      collectives.ReduceScatter("x", operands[rank].data(),
                                                out.data(), counts, how)),
                absl::OkStatus());
      EXPECT_TRUE(out == expected.substr(slices[rank].begin * 4, out.size()));
    });
  }
}

TEST_P(CollectivesTest, TakesDifferentNamesInAnyOrder) {
  constexpr int kNames = 40;
  mesh_.Run([&](int rank, Collectives& collectives) {
    std::vector<std::vector<int32_t>> data(kNames);
    Handles handles(kNames, int64_t{0});
    std::vector<int> order(kNames);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937(rank));
    for (const int i : order) {
      data[i].assign(i % 4 == 0 ? 200'000 : 10, i);
      handles[i] = collectives.AllReduce(absl::StrCat(i), data[i].data(),
                                         data[i].data(), data[i].size(),
                                         {DType::kInt32, Reduction::kSum});
    }
    for (int i = 0; i < kNames; ++i) {
      EXPECT_EQ(Await(collectives, handles[i]), absl::OkStatus());
      EXPECT_EQ(data[i].front(), i * size());
      EXPECT_EQ(data[i].back(), i * size());
    }
  });
}

// More goes along with calls than their window holds.
TEST_P(CollectivesTest, KeepsManyCallsOfRanksThatAreAhead) {
  constexpr int kCalls = 1000;
  const auto body = [&](int rank, Collectives& collectives) {
    std::vector<std::vector<int64_t>> data(kCalls);
    Handles handles;
    for (int i = 0; i < kCalls; ++i) {
      data[i].assign(1000, i + rank);
      handles.push_back(
          collectives.AllReduce("again", data[i].data(), data[i].data(), 1000,
                                {DType::kInt64, Reduction::kSum}));
    }
    // The last rank begins when all others have called everything.
    for (int i = 0; i < kCalls; ++i) {
      ASSERT_EQ(Await(collectives, handles[i]), absl::OkStatus());
      const int n = size();
      EXPECT_EQ(data[i].front(), n * i + n * (n - 1) / 2);
      EXPECT_EQ(collectives.Release(*handles[i]), absl::OkStatus());
    }
  };
  mesh_.Run([&](int rank, Collectives& collectives) {
    const bool last = rank + 1 == size();
    if (!last || size() == 1) return body(rank, collectives);
    absl::SleepFor(absl::Milliseconds(50));
    body(rank, collectives);
  });
}

TEST_P(CollectivesTest, KeepsSetsOfRanksApart) {
  const int n = size();
  mesh_.Run([&](int rank, Collectives& collectives) {
    // All pairs that this rank is in, and it alone, under one name.
    Handles handles;
    std::vector<int32_t> others;
    std::vector<int64_t> sums(n, rank);
    for (int other = 0; other < n; ++other) {
      std::vector<int32_t> set = {std::min(rank, other), std::max(rank, other)};
      if (other == rank) set.resize(1);
      handles.push_back(
          collectives.AllReduce("pair", &sums[other], &sums[other], 1,
                                {DType::kInt64, Reduction::kSum}, set));
    }
    for (int other = 0; other < n; ++other) {
      EXPECT_EQ(Await(collectives, handles[other]), absl::OkStatus());
      EXPECT_EQ(sums[other], other == rank ? rank : rank + other);
    }
  });
}

TEST_P(CollectivesTest, IsUsedByManyThreads) {
  mesh_.Run([&](int rank, Collectives& collectives) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        const std::string name = absl::StrCat("thread ", t);
        for (int i = 0; i < 20; ++i) {
          double value = rank + i;
          const auto handle = collectives.AllReduce(
              name, &value, &value, 1, {DType::kFloat64, Reduction::kMin});
          EXPECT_EQ(Await(collectives, handle), absl::OkStatus());
          EXPECT_EQ(value, i);
          EXPECT_EQ(collectives.Release(*handle), absl::OkStatus());
          EXPECT_EQ(Await(collectives,
                          collectives.Barrier(absl::StrCat(name, " barrier"))),
                    absl::OkStatus());
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

TEST(CollectivesCallsTest, RefusesWhatMakesNoSense) {
  TestMesh mesh(2);
  Collectives& collectives = mesh.at(0);
  int32_t value = 1;
  const auto all_reduce = [&](const std::string& name, int64_t count,
                              const Arithmetic& how,
                              std::vector<int32_t> set = {}) {
    return std::string(
        collectives.AllReduce(name, &value, &value, count, how, set)
            .status()
            .message());
  };
  const Arithmetic sum{DType::kInt32, Reduction::kSum};
  EXPECT_NE(all_reduce("", 1, sum), "");
  EXPECT_EQ(all_reduce("layer.1." + std::string(250, 'x'), 1, sum),
            "a collective's name of 258 bytes (layer.1." +
                std::string(32, 'x') + "): not from 1 to 256");
  EXPECT_NE(all_reduce("x", -1, sum), "");
  EXPECT_EQ(all_reduce("x", 1, sum, {1}),
            "rank 0 is not of the set [1] that it calls");
  EXPECT_NE(all_reduce("x", 1, sum, {0, 2}), "");
  EXPECT_NE(all_reduce("x", 1, sum, {1, 0}), "");
  EXPECT_NE(all_reduce("x", 1, sum, {0, 0}), "");
  EXPECT_EQ(all_reduce("x", 1, {DType::kInt32, Reduction::kAverage}),
            "allreduce 'x': an average of int32: only floats have one; sum, "
            "then divide");
  EXPECT_NE(all_reduce("x", 1, {DType::kInt32, Reduction::kSum, 2}), "");
  EXPECT_NE(all_reduce("x", 1, {static_cast<DType>(10)}), "");
  EXPECT_FALSE(collectives.Broadcast("x", &value, 4, 2).ok());
  EXPECT_FALSE(collectives.Broadcast("x", &value, 4, 1, "", {{0}}).ok());
  EXPECT_FALSE(
      collectives.AllGather("x", &value, 4, std::string(1025, 'x')).ok());
  EXPECT_FALSE(collectives.AllToAll("x", &value, {{4}}).ok());
  EXPECT_FALSE(
      collectives.ReduceScatter("x", &value, &value, {{2, -1}}, sum).ok());
  EXPECT_FALSE(collectives.Wait(12345, absl::ZeroDuration()).ok());
  EXPECT_FALSE(collectives.Release(12345).ok());
}

TEST(CollectivesCallsTest, SaysWhatIsNotDoneYet) {
  TestMesh mesh(2);
  const auto handle = mesh.at(0).Barrier("x");
  ASSERT_TRUE(handle.ok());
  EXPECT_EQ(mesh.at(0).Wait(*handle, absl::ZeroDuration()).value(), false);
  EXPECT_EQ(mesh.at(0).Wait(*handle, absl::Milliseconds(1)).value(), false);
  EXPECT_FALSE(mesh.at(0).Sizes(*handle).ok());
  const auto other = mesh.at(1).Barrier("x");
  EXPECT_EQ(Await(mesh.at(0), handle), absl::OkStatus());
  EXPECT_EQ(Await(mesh.at(1), other), absl::OkStatus());
  EXPECT_TRUE(mesh.at(0).Release(*handle).ok());
  EXPECT_FALSE(mesh.at(0).Release(*handle).ok());
}

}  // namespace
}  // namespace psring
