// A ring whose values travel encoded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/clock.h"
#include "common/model/layout.h"
#include "common/optim/compression.h"
#include "protos/wire.pb.h"
#include "tests/ring/test_ring.h"
#include "tests/testing/sanitized.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

GradientCodec CodecOf(const std::string& name, int64_t elements) {
  return GradientCodec(*ParseCompression(name), OneTensor(elements));
}

std::vector<float> QuantisedDataOf(const GradientCodec& codec, int rank,
                                   int64_t elements) {
  std::vector<float> data = DataOf(rank, elements);
  std::vector<float> residual(elements, 0.0f);
  codec.Quantise({0, elements}, data.data(), residual.data());
  return data;
}

// An update that makes the mean the parameters.
absl::Status MeanOf(TestRank& rank, const GradientCodec& codec,
                    absl::Span<float> data, float scale, Time deadline) {
  std::vector<float> mean(data.size());
  const absl::Status status = rank.tcp->ReduceAndUpdateEncoded(
      codec, 0, data, scale, mean.data(),
      [&](Range range, const void* values) {
        std::memcpy(mean.data() + range.begin, values,
                    range.size() * sizeof(float));
      },
      deadline);
  std::copy(mean.begin(), mean.end(), data.begin());
  return status;
}

using EncodedTest = RingTest;

TEST_P(EncodedTest, GivesEveryRankTheCanonicalBits) {
  const float scale = 1.0f / static_cast<float>(n());
  for (const char* name : {"fp16", "int8", "onebit", "topk:0.1"}) {
    struct Case {
      GradientCodec codec;
      std::vector<std::vector<float>> all;  // of each rank
      std::vector<float> sum;
    };
    std::vector<Case> cases;
    for (const int64_t elements : {16, 4096, 70000, 300000}) {
      Case& c = cases.emplace_back(Case{CodecOf(name, elements), {}, {}});
      for (int r = 0; r < n(); ++r) {
        c.all.push_back(QuantisedDataOf(c.codec, r, elements));
      }
      c.sum = SumOf(c.all, scale);
    }
    RunRanks([&](TestRank& rank) {
      for (const Case& c : cases) {
        const absl::Span<float> data = rank.Place(c.all[rank.c.rank()]);
        const absl::Status status = MeanOf(rank, c.codec, data, scale, Soon());
        ASSERT_TRUE(status.ok()) << status;
        ASSERT_EQ(VectorOf(data), c.sum) << name << " " << c.sum.size();
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(
    Ranks, EncodedTest,
    ::testing::Combine(::testing::ValuesIn(SanitizedUpTo(3, {1, 2, 3, 4, 7})),
                       ::testing::Values(RingPath::kTcp)),
    RingTestName);
INSTANTIATE_TEST_SUITE_P(
    TwoHosts, EncodedTest,
    ::testing::Combine(::testing::Values(3, 4),
                       ::testing::Values(RingPath::kMixed,
                                         RingPath::kMixedRound)),
    RingTestName);

TEST(TcpCommunicator, NamesARankThatSendsNoEncodedValues) {
  std::barrier others(2);
  RunRing(3, RingPath::kTcp, [&](TestRank& rank) {
    if (rank.c.rank() == 1) return;
    const GradientCodec codec = CodecOf("int8", 4096);
    const absl::Span<float> data = rank.Place(std::vector<float>(4096, 1.0f));
    others.arrive_and_wait();
    const absl::Status status =
        MeanOf(rank, codec, data, 1.0f, Now() + kLateAfter);
    EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
    EXPECT_THAT(std::string(status.message()), HasSubstr("worker 1 (host h"));
  });
}

// Strangers that speak as a rank does, up to the values themselves.
TEST(TcpCommunicator, DropsEncodedValuesThatNoEncoderWrites) {
  RunRing(2, RingPath::kTcp, [](TestRank& rank) {
    TcpCommunicator& c = *rank.tcp;
    const GradientCodec codec = CodecOf("int8", 1024);
    const Range slice = NearEqualPart({0, 1024}, 2, c.rank());
    // Floats; one byte; too many; a scale of 0 in the right size.
    const int64_t sizes[] = {4 * slice.size(), 1, 4 * slice.size(),
                             slice.size() + 2};
    for (int attack = 0; attack < 4; ++attack) {
      proto::WireHeader header;
      header.set_kind(proto::WireHeader::SEGMENT);
      header.set_dtype(attack == 0 ? proto::WireHeader::FLOAT32
                                   : proto::WireHeader::ENCODED);
      header.set_job_epoch(99);
      header.set_sender(1 - c.rank());
      header.set_sequence(1);
      header.set_bucket(c.rank());  // DirectRoutes: of that slice
      header.set_hop(1);
      header.set_offset(slice.begin);
      header.set_num_elements(slice.size());
      ASSERT_NO_FATAL_FAILURE(SendAsStranger(c, header.SerializeAsString(),
                                             std::string(sizes[attack], '\0')));
    }
    for (int i = 0; i < 50; ++i) {
      const absl::Span<float> data = rank.Place(std::vector<float>(1024, 1.0f));
      ASSERT_TRUE(MeanOf(rank, codec, data, 1.0f, Soon()).ok());
      ASSERT_EQ(VectorOf(data), std::vector<float>(1024, 2.0f));
    }
    EXPECT_EQ(c.malformed(), 4);
  });
}

}  // namespace
}  // namespace psring
