// What every communicator promises, for 1 to 8 ranks as threads. (NCCL and its
// GPUs are fakes, which sum in the canonical order.)
#include "ring/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "common/clock.h"
#include "common/model/layout.h"
#include "common/net/context.h"
#include "common/net/keys.h"
#include "protos/cluster.pb.h"
#include "protos/wire.pb.h"
#include "ring/tcp_communicator.h"
#include "tests/ring/test_ring.h"
#include "tests/testing/sanitized.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::vector<float>> DataOfAll(int n, int64_t elements) {
  std::vector<std::vector<float>> data;
  for (int r = 0; r < n; ++r) data.push_back(DataOf(r, elements));
  return data;
}

const std::vector<int64_t> kSizes = {0,  1,   7,    15,    16,
                                     17, 100, 4097, 70001, kMaxElements};

using CommunicatorTest = RingTest;

TEST_P(CommunicatorTest, AllReduceGivesEveryRankTheCanonicalBits) {
  const float scale = 1.0f / static_cast<float>(n());
  std::vector<std::vector<std::vector<float>>> all;  // of each size
  std::vector<std::vector<float>> sums;
  for (const int64_t elements : kSizes) {
    all.push_back(DataOfAll(n(), elements));
    sums.push_back(SumOf(all.back(), scale));
  }
  RunRanks([&](TestRank& rank) {
    for (size_t i = 0; i < kSizes.size(); ++i) {
      const absl::Span<float> data = rank.Place(all[i][rank.c.rank()]);
      const absl::Status status = rank.c.AllReduce(data, scale, Soon());
      ASSERT_TRUE(status.ok()) << status;
      ASSERT_EQ(VectorOf(data), sums[i]) << kSizes[i];
    }
  });
}

TEST_P(CommunicatorTest, AllGatherGivesAllEverySlice) {
  const std::vector<float> largest = DataOf(n(), kMaxElements);
  RunRanks([&](TestRank& rank) {
    for (int64_t elements : kSizes) {
      const std::vector<float> whole(largest.begin(),
                                     largest.begin() + elements);
      const Range mine = NearEqualPart({0, elements}, n(), rank.c.rank());
      std::vector<float> values(elements, -1.0f);
      std::copy(whole.begin() + mine.begin, whole.begin() + mine.end,
                values.begin() + mine.begin);
      const absl::Span<float> data = rank.Place(values);
      ASSERT_TRUE(rank.c.AllGather(data, Soon()).ok());
      ASSERT_EQ(VectorOf(data), whole) << elements;
    }
  });
}

TEST_P(CommunicatorTest, BroadcastReachesAllFromAnyRoot) {
  RunRanks([&](TestRank& rank) {
    for (int root = 0; root < n(); ++root) {
      // All sizes from the first root, one from each other.
      for (const int64_t elements :
           root == 0 ? kSizes
                     : std::vector<int64_t>{kSizes[kSizes.size() - root]}) {
        const absl::Span<float> data =
            rank.Place(DataOf(rank.c.rank(), elements));
        ASSERT_TRUE(rank.c.Broadcast(data, root, Soon()).ok());
        ASSERT_EQ(VectorOf(data), DataOf(root, elements));
      }
    }
  });
}

TEST_P(CommunicatorTest, BarrierHoldsUntilEverybodyIsThere) {
  std::atomic<int> arrived = 0;
  RunRanks([&](TestRank& rank) {
    for (int round = 1; round <= 20; ++round) {
      ++arrived;
      ASSERT_TRUE(rank.c.Barrier(Soon()).ok());
      ASSERT_GE(arrived.load(), n() * round);
    }
  });
}

// Of all kinds and of sizes on both sides of every threshold.
TEST_P(CommunicatorTest, ManyCollectivesInARowDoNotMix) {
  RunRanks([&](TestRank& rank) {
    for (int i = 0; i < 200; ++i) {
      const std::vector<float> values(i % 3 == 0 ? 5000 : 33,
                                      static_cast<float>(i));
      const absl::Span<float> data = rank.Place(values);
      ASSERT_TRUE(rank.c.AllReduce(data, 1.0f, Soon()).ok());
      ASSERT_EQ(VectorOf(data),
                std::vector<float>(values.size(), static_cast<float>(i * n())));
      if (i % 5 == 0) {
        ASSERT_TRUE(rank.c.Broadcast(data, i % n(), Soon()).ok());
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, CommunicatorTest,
    ::testing::Combine(::testing::ValuesIn(SanitizedUpTo(3, {1, 2, 3, 4, 5, 6,
                                                             7, 8})),
                       ::testing::Values(RingPath::kTcp, RingPath::kShm,
                                         RingPath::kShmStaged)),
    RingTestName);
INSTANTIATE_TEST_SUITE_P(
    Ways, CommunicatorTest,
    ::testing::Combine(::testing::ValuesIn(SanitizedUpTo(3, {2, 3, 5, 8})),
                       ::testing::Values(RingPath::kTcpRound,
                                         RingPath::kTcpOwners,
                                         RingPath::kTcpEverybody)),
    RingTestName);
INSTANTIATE_TEST_SUITE_P(
    TwoHosts, CommunicatorTest,
    ::testing::Combine(::testing::ValuesIn(SanitizedUpTo(4, {3, 4, 5, 8})),
                       ::testing::Values(RingPath::kMixed,
                                         RingPath::kMixedRound)),
    RingTestName);

INSTANTIATE_TEST_SUITE_P(Gpus, CommunicatorTest,
                         ::testing::Combine(::testing::Values(1, 2, 3, 4),
                                            ::testing::Values(RingPath::kNccl)),
                         RingTestName);

// 1e16 swallows a 1 that is added to it, so that every other order of a sum,
// and every partial sum of others, shows.
class OneOrderTest : public ::testing::TestWithParam<int> {};

TEST_P(OneOrderTest, AllWaysGiveTheSameBits) {
  const int n = GetParam();
  const float scale = 1.0f / static_cast<float>(n);
  constexpr float kValues[] = {1e16f, 1.0f, -1e16f, 3.0f, 1e8f};
  const std::vector<int64_t> sizes = {1, 5, 250, 777, 4099, 70001};
  std::vector<std::vector<std::vector<float>>> all;  // of each size
  std::vector<std::vector<float>> sums;
  for (const int64_t elements : sizes) {
    all.emplace_back(n, std::vector<float>(elements));
    for (int r = 0; r < n; ++r) {
      for (int64_t i = 0; i < elements; ++i) {
        all.back()[r][i] = kValues[(i + r * (1 + i % 3)) % 5];
      }
    }
    sums.push_back(SumOf(all.back(), scale));
  }
  for (const RingPath path : {RingPath::kTcp, RingPath::kTcpRound,
                              RingPath::kTcpOwners, RingPath::kTcpEverybody}) {
    RunRing(n, path, [&](TestRank& rank) {
      for (size_t i = 0; i < sizes.size(); ++i) {
        const absl::Span<float> data = rank.Place(all[i][rank.c.rank()]);
        const absl::Status status = rank.c.AllReduce(data, scale, Soon());
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(VectorOf(data), sums[i])
            << sizes[i] << " elements, way " << static_cast<int>(path);
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Ranks, OneOrderTest,
                         ::testing::ValuesIn(SanitizedUpTo(3,
                                                           {2, 3, 4, 5, 8})));

class MissingRankTest : public ::testing::TestWithParam<RingPath> {};

TEST_P(MissingRankTest, IsNamed) {
  std::barrier others(2);
  RunRing(3, GetParam(), [&](TestRank& rank) {
    if (rank.c.rank() == 1) return;
    const absl::Span<float> data = rank.Place(std::vector<float>(5000, 1.0f));
    others.arrive_and_wait();
    const absl::Status status =
        rank.c.AllReduce(data, 1.0f, Now() + kLateAfter);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    if (rank.c.rank() == 2) {
      EXPECT_THAT(std::string(status.message()), HasSubstr("worker 1 (host h"));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Paths, MissingRankTest,
                         ::testing::Values(RingPath::kTcpRound,
                                           RingPath::kTcpEverybody,
                                           RingPath::kShm, RingPath::kNccl));

// Round the ring, and in rounds, a rank knows of some others alone; by way of
// the owners of all.
TEST(TcpCommunicator, EveryOwnerNamesAMissingRank) {
  std::barrier others(3);
  RunRing(4, RingPath::kTcpOwners, [&](TestRank& rank) {
    if (rank.c.rank() == 1) return;
    const absl::Span<float> data = rank.Place(std::vector<float>(5000, 1.0f));
    others.arrive_and_wait();
    const absl::Status status =
        rank.c.AllReduce(data, 1.0f, Now() + kLateAfter);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()), HasSubstr("worker 1 (host h"));
  });
}

// Only the rank whose connection it is knows why nothing arrives.
TEST(TcpCommunicator, NamesAPeerThatRefusesItsConnection) {
  Context keyed, peers;
  ASSERT_TRUE(keyed.Secure(Secret::Random()).ok());
  ASSERT_TRUE(peers.UseTokens().ok());
  const Cancellation cancellation;
  auto rank = TcpCommunicator::Create(keyed, cancellation, "127.0.0.1");
  auto peer = TcpCommunicator::Create(peers, cancellation, "127.0.0.1");
  ASSERT_TRUE(rank.ok() && peer.ok());
  proto::Welcome job;
  for (int r = 0; r < 2; ++r) {
    proto::Process& worker = *job.add_workers();
    worker.set_rank(r);
    worker.set_host("h");
    worker.set_role(proto::WORKER);
    worker.set_public_key(keyed.public_key());
    worker.add_endpoints(r == 0 ? (*rank)->endpoint() : (*peer)->endpoint());
  }
  (*rank)->Connect(job);
  std::vector<float> data(16);
  const absl::Status status =
      (*rank)->AllReduce(absl::MakeSpan(data), 1.0f, Soon());
  EXPECT_EQ(status.code(), absl::StatusCode::kPermissionDenied) << status;
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("worker 1 (host h"), HasSubstr("has no key")));
}

TEST(ShmCommunicator, RanksThatDisagreeOnTheSizeAreNamed) {
  RunRing(2, RingPath::kShm, [](TestRank& rank) {
    const absl::Span<float> data =
        rank.Place(std::vector<float>(rank.c.rank() == 0 ? 5000 : 6000, 1.0f));
    const absl::Status status = rank.c.AllReduce(data, 1.0f, Soon());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("5000"), HasSubstr("6000")));
  });
}

// Strangers that send what a rank is about to, but for one thing.
class StrangersTest : public ::testing::TestWithParam<RingPath> {};

TEST_P(StrangersTest, AreDroppedAndTheRingKeepsWorking) {
  RunRing(2, GetParam(), [](TestRank& rank) {
    TcpCommunicator& c = *rank.tcp;
    const bool everybody = GetParam() == RingPath::kTcpEverybody;
    const Range slice =
        everybody ? Range{0, 1000} : NearEqualPart({0, 1000}, 2, c.rank());
    for (int attack = 0; attack < 5; ++attack) {
      proto::WireHeader header;
      header.set_kind(proto::WireHeader::SEGMENT);
      header.set_dtype(proto::WireHeader::FLOAT32);
      header.set_job_epoch(attack == 1 ? 1 : 99);
      header.set_sender(attack == 2 ? c.rank() : 1 - c.rank());
      header.set_sequence(attack == 3 ? 77 : 1);
      // Round the ring of the slice; to everybody of the sender.
      header.set_bucket(everybody ? 1 - c.rank() : c.rank());
      header.set_hop(1);
      header.set_offset(attack == 4 ? slice.begin + 1 : slice.begin);
      header.set_num_elements(slice.size());
      ASSERT_NO_FATAL_FAILURE(
          SendAsStranger(c, attack == 0 ? "x" : header.SerializeAsString(),
                         std::string(slice.size() * sizeof(float), '1')));
    }
    for (int i = 0; i < 50; ++i) {
      const absl::Span<float> data = rank.Place(std::vector<float>(1000, 1.0f));
      ASSERT_TRUE(c.AllReduce(data, 1.0f, Soon()).ok());
      ASSERT_EQ(VectorOf(data), std::vector<float>(1000, 2.0f));
    }
    EXPECT_EQ(c.malformed(), 5);
  });
}

INSTANTIATE_TEST_SUITE_P(Paths, StrangersTest,
                         ::testing::Values(RingPath::kTcpRound,
                                           RingPath::kTcpEverybody));

}  // namespace
}  // namespace psring
