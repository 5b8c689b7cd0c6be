// A step of a bucket by messages: whoever has a slice's mean updates it, and
// everybody gets the parameters.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/model/layout.h"
#include "ring/message_plan.h"
#include "tests/ring/test_ring.h"
#include "tests/testing/sanitized.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

constexpr float kRate = 0.25f;

// Where the parameters of a rank lie: in its arena, if it has one.
class Parameters {
 public:
  Parameters(TestRank& rank, int64_t elements) : own_(elements) {
    data_ = rank.arena != nullptr ? rank.arena->parameters() : own_.data();
    for (int64_t i = 0; i < elements; ++i) data_[i] = Initial(i);
  }
  static float Initial(int64_t i) { return static_cast<float>(i % 7); }
  float* data() { return data_; }

 private:
  std::vector<float> own_;
  float* data_ = nullptr;
};

using ReduceAndUpdateTest = RingTest;

TEST_P(ReduceAndUpdateTest, OwnersUpdateAndEverybodyGetsTheParameters) {
  const float scale = 1.0f / static_cast<float>(n());
  struct Case {
    std::vector<std::vector<float>> all;  // of each rank
    std::vector<float> mean;
  };
  std::vector<Case> cases;
  for (const int64_t elements : {0, 1, 16, 4096, 70000, 300000}) {
    Case& c = cases.emplace_back();
    for (int r = 0; r < n(); ++r) c.all.push_back(DataOf(r, elements));
    c.mean = SumOf(c.all, scale);
  }
  RunRanks([&](TestRank& rank) {
    for (const auto& [all, mean] : cases) {
      const auto elements = static_cast<int64_t>(mean.size());
      Parameters parameters(rank, elements);
      std::vector<int> updates(elements, 0);
      const auto update = [&](Range range, const void* values) {
        std::vector<float> given(range.size());
        std::copy_n(static_cast<const char*>(values),
                    range.size() * sizeof(float),
                    reinterpret_cast<char*>(given.data()));
        for (int64_t i = range.begin; i < range.end; ++i) {
          parameters.data()[i] -= kRate * given[i - range.begin];
          ++updates[i];
        }
      };
      const absl::Status status =
          rank.tcp->ReduceAndUpdate(rank.Place(all[rank.c.rank()]), scale,
                                    parameters.data(), update, Soon());
      ASSERT_TRUE(status.ok()) << status;
      for (int64_t i = 0; i < elements; ++i) {
        ASSERT_EQ(parameters.data()[i],
                  Parameters::Initial(i) - kRate * mean[i])
            << elements << " " << i;
      }
      std::vector<int> own(elements, 0);
      for (const OwnedSlice& slice : rank.tcp->Owners(elements, false)) {
        if (slice.owner != OwnedSlice::kEveryRank &&
            slice.owner != rank.c.rank()) {
          continue;
        }
        std::fill(own.begin() + slice.range.begin,
                  own.begin() + slice.range.end, 1);
      }
      ASSERT_EQ(updates, own) << elements;
    }
  });
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, ReduceAndUpdateTest,
    ::testing::Combine(::testing::ValuesIn(SanitizedUpTo(3, {1, 2, 3, 5})),
                       ::testing::Values(RingPath::kTcp, RingPath::kTcpRound,
                                         RingPath::kTcpOwners,
                                         RingPath::kTcpEverybody)),
    RingTestName);
INSTANTIATE_TEST_SUITE_P(
    TwoHosts, ReduceAndUpdateTest,
    ::testing::Combine(::testing::ValuesIn(SanitizedUpTo(4, {3, 4, 6})),
                       ::testing::Values(RingPath::kMixed,
                                         RingPath::kMixedRound)),
    RingTestName);

TEST(ReduceAndUpdate, RefusesParametersThatANodeCannotReach) {
  RunRing(4, RingPath::kMixed, [](TestRank& rank) {
    std::vector<float> elsewhere(16);
    const absl::Status status = rank.tcp->ReduceAndUpdate(
        rank.Place(std::vector<float>(16)), 1.0f, elsewhere.data(),
        [](Range, const void*) {}, Soon());
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("arena"));
  });
}

// A deadline is for who brings nothing, not for a long way: here 4.5 s. A busy
// machine may well hold everybody up for some seconds.
TEST(ReduceAndUpdate, MayTakeLongAsLongAsSegmentsCome) {
  RunRing(2, RingPath::kTcp, [](TestRank& rank) {
    constexpr int64_t kSegments = 15;
    std::vector<float> parameters(2 * kSegments * kSegmentElements);
    const auto update = [&](Range, const void*) {
      if (rank.c.rank() == 0) absl::SleepFor(absl::Milliseconds(300));
    };
    const absl::Status status = rank.tcp->ReduceAndUpdate(
        rank.Place(std::vector<float>(parameters.size())), 1.0f,
        parameters.data(), update, Now() + absl::Seconds(4));
    EXPECT_TRUE(status.ok()) << status;
  });
}

TEST(Move, BringsOneRanksValuesToAnother) {
  RunRing(3, RingPath::kTcp, [](TestRank& rank) {
    for (const int64_t elements : {0, 1, 200000}) {
      for (const auto& [from, to] : {std::pair(0, 2), {2, 0}, {1, 2}}) {
        std::vector<float> data = DataOf(rank.c.rank(), elements);
        ASSERT_TRUE(
            rank.tcp->Move(absl::MakeSpan(data), from, to, Soon()).ok());
        EXPECT_EQ(data,
                  DataOf(rank.c.rank() == to ? from : rank.c.rank(), elements));
      }
    }
  });
}

}  // namespace
}  // namespace psring
