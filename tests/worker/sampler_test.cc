#include "worker/sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using List = std::vector<int64_t>;

SamplerOptions Two(int64_t dataset_size, int rank) {
  return {.dataset_size = dataset_size, .num_replicas = 2, .rank = rank};
}

// Every list below is what torch.utils.data.DistributedSampler gave.
TEST(SamplerTest, DealsTheShuffledOrderInTurns) {
  EXPECT_THAT(Indices(Two(8, 0), 0), ElementsAre(4, 7, 2, 1));
  EXPECT_THAT(Indices(Two(8, 1), 0), ElementsAre(0, 3, 5, 6));
  EXPECT_THAT(Indices(Two(6, 0), 0), ElementsAre(2, 3, 1));
  EXPECT_THAT(Indices(Two(6, 1), 0), ElementsAre(5, 0, 4));
  EXPECT_THAT(Indices(Two(10, 0), 0), ElementsAre(4, 7, 3, 0, 6));
  EXPECT_THAT(Indices(Two(10, 1), 0), ElementsAre(1, 5, 9, 8, 2));
}

TEST(SamplerTest, ShufflesAnewInEachEpoch) {
  EXPECT_THAT(Indices(Two(8, 0), 1), ElementsAre(5, 2, 7, 1));
  EXPECT_THAT(Indices(Two(8, 1), 1), ElementsAre(4, 6, 3, 0));
}

TEST(SamplerTest, RepeatsTheFrontWhereTheRanksDoNotDivideTheDataset) {
  EXPECT_THAT(Indices(Two(5, 0), 0), ElementsAre(4, 1, 2));
  EXPECT_THAT(Indices(Two(5, 1), 0), ElementsAre(0, 3, 4));
  EXPECT_THAT(Indices(Two(5, 0), 1), ElementsAre(0, 2, 1));
  EXPECT_THAT(Indices(Two(5, 1), 1), ElementsAre(4, 3, 0));
}

TEST(SamplerTest, RepeatsSeveralTimesForMoreRanksThanTwiceTheSamples) {
  SamplerOptions options = {.dataset_size = 3, .num_replicas = 8, .seed = 5};
  List dealt;
  for (options.rank = 0; options.rank < 8; ++options.rank) {
    const List mine = Indices(options, 2);
    ASSERT_EQ(mine.size(), 1u);
    dealt.push_back(mine[0]);
  }
  EXPECT_THAT(dealt, ElementsAre(0, 1, 2, 0, 1, 2, 0, 1));
}

TEST(SamplerTest, DropsTheTailInsteadWhereAsked) {
  SamplerOptions options = {.dataset_size = 11,
                            .num_replicas = 3,
                            .rank = 2,
                            .seed = 42,
                            .drop_last = true};
  EXPECT_THAT(Indices(options, 7), ElementsAre(10, 5, 0));
  options.dataset_size = 2;
  EXPECT_THAT(Indices(options, 7), IsEmpty());
}

TEST(SamplerTest, DealsWhatOthersHaveLeftOfAnEpoch) {
  SamplerOptions one = {.dataset_size = 8};
  const List order = Indices(one, 0);
  one.consumed = 6;
  EXPECT_THAT(Indices(one, 0), ElementsAre(order[6], order[7]));
  SamplerOptions two = Two(8, 0);
  two.consumed = 3;
  EXPECT_THAT(Indices(two, 0), ElementsAre(order[3], order[5], order[7]));
  two.rank = 1;  // its last is the padding
  EXPECT_THAT(Indices(two, 0), ElementsAre(order[4], order[6], order[0]));
  two.consumed = 8;
  EXPECT_THAT(Indices(two, 0), IsEmpty());
}

TEST(SamplerTest, DealsTheRestToTheSameRanksAsTheyWouldHaveHadIt) {
  for (const int consumed : {0, 2, 4}) {
    for (const int rank : {0, 1}) {
      SamplerOptions options = Two(5, rank);
      const List whole = Indices(options, 0);
      options.consumed = consumed;
      EXPECT_EQ(Indices(options, 0),
                List(whole.begin() + consumed / 2, whole.end()));
    }
  }
}

TEST(SamplerTest, KeepsTheOrderWithoutShuffling) {
  SamplerOptions options = Two(5, 1);
  options.shuffle = false;
  EXPECT_THAT(Indices(options, 3), ElementsAre(1, 3, 0));
}

TEST(SamplerTest, TakesTheLowHalfOfALargeSeed) {
  SamplerOptions options = {
      .dataset_size = 7, .num_replicas = 1, .seed = 0xfedcba9876543210};
  EXPECT_THAT(Indices(options, 1), ElementsAre(2, 1, 5, 6, 0, 4, 3));
}

TEST(SamplerTest, AgreesWithTorchOnALargeDataset) {
  const List mine = Indices(
      {.dataset_size = 60000, .num_replicas = 4, .rank = 3, .seed = 1}, 9);
  EXPECT_EQ(mine.size(), 15000u);
  EXPECT_THAT(List(mine.end() - 5, mine.end()),
              ElementsAre(26335, 57033, 10831, 59188, 30377));
  EXPECT_EQ(std::accumulate(mine.begin(), mine.end(), int64_t{0}), 449510807);
}

TEST(SamplerTest, GivesNothingOfAnEmptyDataset) {
  EXPECT_THAT(Indices(Two(0, 1), 0), IsEmpty());
  EXPECT_THAT(EvaluationIndices(0, 2, 1), IsEmpty());
}

TEST(EvaluationIndicesTest, ScoresEverySampleOnce) {
  EXPECT_THAT(EvaluationIndices(7, 3, 0), ElementsAre(0, 3, 6));
  EXPECT_THAT(EvaluationIndices(7, 3, 1), ElementsAre(1, 4));
  EXPECT_THAT(EvaluationIndices(7, 3, 2), ElementsAre(2, 5));
  EXPECT_THAT(EvaluationIndices(1, 3, 2), IsEmpty());
}

}  // namespace
}  // namespace psring
