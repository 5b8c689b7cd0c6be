#include "ps/update_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

namespace psring {
namespace {

constexpr int kElements = 32;
constexpr int kWorkers = 3;

// One piece of 32 parameters, all 1, and plain sgd with lr 0.5.
class UpdateRuleTest : public ::testing::Test {
 protected:
  UpdateRuleTest() {
    spec_.set_sync(proto::ASYNC);
    spec_.mutable_optimizer()->set_name("sgd");
    spec_.mutable_optimizer()->set_lr(0.5);
    spec_.mutable_optimizer()->mutable_schedule()->set_kind("constant");
    proto::TensorShape shape;
    shape.set_name("t");
    shape.add_shape(kElements);
    layout_ = std::make_unique<Layout>(*Layout::Create({shape}, 1 << 20));
  }

  UpdateRule& Rule() {
    shard_ = std::make_unique<Shard>(
        *Shard::Create({{0, kElements}}, *Optimizer::Create(spec_.optimizer()),
                       spec_.delay_compensation() > 0 ? kWorkers : 0));
    const std::vector<float> ones(kElements, 1.0f);
    shard_->Set(0, {0, kElements}, ones.data());
    pieces_ = std::make_unique<PieceTable>(*layout_, Ranges{{0, kElements}});
    rule_ = std::make_unique<UpdateRule>(spec_, kWorkers, *layout_, *pieces_,
                                         *shard_);
    for (int w = 0; w < kWorkers; ++w) rule_->OnRead(0, w);
    return *rule_;
  }

  void Apply(int worker, float gradient) {
    const std::vector<float> values(kElements, gradient);
    rule_->ApplyOne(0, 0, {worker, values.data()});
  }

  float parameter() { return shard_->parameters(0)[kElements - 1]; }

  proto::JobSpec spec_;
  std::unique_ptr<Layout> layout_;
  std::unique_ptr<PieceTable> pieces_;
  std::unique_ptr<Shard> shard_;
  std::unique_ptr<UpdateRule> rule_;
};

TEST_F(UpdateRuleTest, TheMeanIsOverAllWorkersWhoseGradientsWereSummed) {
  spec_.set_sync(proto::BSP);
  UpdateRule& rule = Rule();
  const std::vector<float> sum_of_3(kElements, 7.0f);
  const std::vector<float> alone(kElements, 1.0f);
  rule.ApplyMean(
      0, 0, {{0, sum_of_3.data(), {}, /*num_gradients=*/3}, {2, alone.data()}},
      {});
  EXPECT_EQ(parameter(), 1.0f - 0.5f * 2.0f);
}

TEST_F(UpdateRuleTest, WithoutCuresEveryGradientCountsInFull) {
  Rule();
  for (int w : {0, 0, 0, 1}) Apply(w, 1.0f);
  EXPECT_EQ(parameter(), -1.0f);
}

TEST_F(UpdateRuleTest, StalenessLrDividesTheRateByStalenessFromTwoOn) {
  spec_.set_staleness_lr(true);
  Rule();
  Apply(0, 1.0f);  // staleness 0
  EXPECT_EQ(parameter(), 0.5f);
  Apply(1, 1.0f);  // 1
  EXPECT_EQ(parameter(), 0.0f);
  Apply(2, 1.0f);  // 2: half the rate
  EXPECT_EQ(parameter(), -0.25f);
  rule_->OnRead(0, 2);
  Apply(2, 1.0f);
  EXPECT_EQ(parameter(), -0.75f);
}

// g + lambda * g * g * (w - w when read), worked out by hand.
TEST_F(UpdateRuleTest, DelayCompensationCorrectsByWhatHasHappenedSinceTheRead) {
  spec_.set_delay_compensation(2.0);
  Rule();
  Apply(0, 1.0f);  // nothing has happened: 1 - 0.5 * 1
  EXPECT_EQ(parameter(), 0.5f);
  Apply(1, 0.5f);  // 0.5 + 2 * 0.25 * (0.5 - 1) = 0.25
  EXPECT_EQ(parameter(), 0.375f);
  rule_->OnRead(0, 1);
  Apply(1, 0.5f);
  EXPECT_EQ(parameter(), 0.125f);
  Apply(2, 1.0f);  // read at the start: 1 + 2 * (0.125 - 1) = -0.75
  EXPECT_EQ(parameter(), 0.5f);
}

TEST_F(UpdateRuleTest, DelayCompensationReachesEveryElementOfALargePiece) {
  proto::TensorShape shape;
  shape.set_name("t");
  shape.add_shape(10000);
  layout_ = std::make_unique<Layout>(*Layout::Create({shape}, 1 << 20));
  const Range all{0, layout_->num_elements()};
  spec_.set_delay_compensation(1.0);
  Shard shard =
      *Shard::Create({all}, *Optimizer::Create(spec_.optimizer()), kWorkers);
  const PieceTable pieces(*layout_, {all});
  ASSERT_EQ(pieces.size(), 1);
  UpdateRule rule(spec_, kWorkers, *layout_, pieces, shard);
  rule.OnRead(0, 2);
  std::vector<float> gradient(all.size());
  for (size_t i = 0; i < gradient.size(); ++i) {
    gradient[i] = static_cast<float>(i % 7);
  }
  rule.ApplyOne(0, 0, {0, gradient.data()});
  rule.ApplyOne(0, 0, {2, gradient.data()});
  for (size_t i = 0; i < gradient.size(); ++i) {
    const float g = gradient[i], now = -0.5f * g;
    ASSERT_EQ(shard.parameters(0)[i], now - 0.5f * (g + g * g * now)) << i;
  }
}

TEST_F(UpdateRuleTest, TheMeanIsOverThoseThatContribute) {
  spec_.set_sync(proto::BSP);
  Rule();
  const std::vector<float> two(kElements, 2.0f), four(kElements, 4.0f);
  rule_->ApplyMean(0, 0, {{{0, two.data()}, {2, four.data()}}}, {});
  EXPECT_EQ(parameter(), 1.0f - 0.5f * 3.0f);
}

}  // namespace
}  // namespace psring
