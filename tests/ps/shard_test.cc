#include "ps/shard.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "common/model/reduce.h"
#include "common/optim/fused_update.h"

namespace psring {
namespace {

Optimizer Momentum() {
  proto::OptimizerSettings settings;
  settings.set_name("momentum");
  settings.set_lr(0.1);
  settings.set_momentum(0.9);
  return *Optimizer::Create(settings);
}

std::vector<float> RandomValues(int seed, int64_t n) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(n);
  for (float& v : values) v = normal(random);
  return values;
}

// The fused, tiled update must give the bits of a plain sum followed by a plain
// update, wherever a server's range cuts the bucket.
TEST(Shard, AFusedUpdateOfAnyPartIsTheCanonicalSumThenTheOptimizer) {
  const Range bucket{32, 32 + 10000};
  std::vector<std::vector<float>> gradients;
  for (int w = 0; w < 3; ++w) gradients.push_back(RandomValues(w, 10000));
  for (const Range range : {bucket, Range{48, 9000}, Range{4128, 4144}}) {
    auto shard = Shard::Create({range}, Momentum());
    ASSERT_TRUE(shard.ok());
    const std::vector<float> first = RandomValues(9, range.size());
    shard->Set(0, range, first.data());
    std::vector<float> parameters = first;
    std::vector<float> momentum(range.size(), 0.0f);
    std::vector<float> first_copy(range.size());
    std::vector<float> second_copy(range.size());
    const std::vector<float*> copies = {first_copy.data(), second_copy.data()};
    for (int64_t step = 1; step <= 3; ++step) {
      std::vector<const void*> inputs;
      for (const auto& g : gradients) {
        inputs.push_back(g.data() + (range.begin - bucket.begin));
      }
      SumAndUpdate(shard->optimizer(), bucket, range, inputs, 1.0f / 3, step,
                   {0.1}, shard->parameters(range.begin),
                   shard->SlotsAt(range.begin), copies);
      std::vector<float> sum(range.size());
      CanonicalSum(bucket, range, inputs, 1.0f / 3, sum.data());
      float* slots[] = {momentum.data()};
      Momentum().Update(step, 0.1, sum.data(), parameters.data(), slots,
                        range.size());
    }
    for (int64_t i = 0; i < range.size(); ++i) {
      ASSERT_EQ(shard->parameters(range.begin)[i], parameters[i]);
    }
    EXPECT_EQ(first_copy, parameters);
    EXPECT_EQ(second_copy, parameters);
  }
}

TEST(Shard, KeepsToTheRangeThatItIsGiven) {
  const Range all{0, 4096};
  auto shard = Shard::Create({all}, Momentum());
  const std::vector<float> ones(4096, 1.0f);
  shard->Apply({64, 128}, ones.data(), 1, {0.5});
  for (int64_t i = 0; i < 4096; ++i) {
    ASSERT_EQ(shard->parameters(0)[i], i >= 64 && i < 128 ? -0.5f : 0.0f);
  }
}

TEST(Shard, OfSeveralRangesKeepsEachInItsPlace) {
  auto shard = Shard::Create({{16, 32}, {64, 96}, {160, 176}}, Momentum());
  int value = 0;
  for (const Range range : shard->ranges()) {
    const std::vector<float> values(range.size(), static_cast<float>(++value));
    shard->Set(0, range, values.data());
    shard->Set(1, range, values.data());
  }
  const std::vector<float> zero(16, 0.0f);
  shard->Apply({80, 96}, zero.data(), 1, {1.0});
  EXPECT_EQ(shard->parameters(16)[15], 1.0f);
  EXPECT_EQ(shard->parameters(64)[15], 2.0f);
  EXPECT_EQ(shard->parameters(80)[0], 2.0f - 0.9f * 2.0f);
  EXPECT_EQ(shard->parameters(95)[0], 2.0f - 0.9f * 2.0f);
  EXPECT_EQ(shard->parameters(160)[0], 3.0f);
  EXPECT_EQ(shard->SlotsAt(64)[0][15], 2.0f);
  EXPECT_EQ(shard->SlotsAt(80)[0][0], 0.9f * 2.0f);
  EXPECT_EQ(shard->SlotsAt(160)[0][15], 3.0f);
}

TEST(Shard, TakesUpHandedInOptimizerState) {
  auto shard = Shard::Create({{0, 16}}, Momentum());
  const std::vector<float> momentum(16, 2.0f);
  const std::vector<float> zero(16, 0.0f);
  shard->Set(1, {0, 16}, momentum.data());
  shard->Apply({0, 16}, zero.data(), 1, {1.0});
  EXPECT_EQ(shard->parameters(0)[3], -0.9f * 2.0f);
}

}  // namespace
}  // namespace psring
