#include "ring/rank_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/ring/test_ring.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

proto::Welcome JobOf(const std::string& optimizer) {
  proto::Welcome job;
  job.add_workers();
  proto::OptimizerSettings& settings = *job.mutable_spec()->mutable_optimizer();
  settings.set_name(optimizer);
  settings.set_lr(0.5);
  settings.set_momentum(optimizer == "momentum" ? 0.25 : 0.0);
  settings.mutable_schedule()->set_kind("constant");
  if (optimizer == "adam") {
    settings.set_beta1(0.9);
    settings.set_beta2(0.999);
    settings.set_epsilon(1e-8);
  }
  return job;
}

// The state lies in the arena or in memory of the model's own.
class RankModelTest : public ::testing::TestWithParam<SameHost> {
 protected:
  RankModelTest() : flat_(*FlatModel::Create(OneTensor(32), GetParam(), 1)) {}

  FlatModel flat_;
};

TEST_P(RankModelTest, BeginsWithoutMomentum) {
  auto model = RankModel::Create(JobOf("momentum"), flat_);
  ASSERT_TRUE(model.ok()) << model.status();
  ASSERT_TRUE(model->TakeSlots({}).ok());
  ASSERT_EQ(model->num_slots(), 1);
  EXPECT_EQ(VectorOf(model->slot(0).span()), std::vector<float>(32, 0.0f));
}

// b = mu * b + g; p -= lr * b.
TEST_P(RankModelTest, UpdatesABucketFromTheStateThatIsHandedIn) {
  auto model = RankModel::Create(JobOf("momentum"), flat_);
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<FlatBuffer> slots;
  slots.push_back(*FlatBuffer::Create(32));
  slots[0].data()[3] = 8.0f;
  ASSERT_TRUE(model->TakeSlots(std::move(slots)).ok());
  for (float& p : flat_.parameters.span()) p = 10.0f;
  for (float& g : flat_.gradients.span()) g = 1.0f;
  model->Update(model->bucket(0), 7);
  EXPECT_EQ(model->slot(0).data()[3], 3.0f);
  EXPECT_EQ(flat_.parameters.data()[3], 8.5f);
  EXPECT_EQ(model->slot(0).data()[4], 1.0f);
  EXPECT_EQ(flat_.parameters.data()[4], 9.5f);
  if (GetParam() == SameHost::kOff) return;
  EXPECT_EQ(flat_.arena->slot(0)[3], 3.0f);  // where its peers read it
}

INSTANTIATE_TEST_SUITE_P(Memory, RankModelTest,
                         ::testing::Values(SameHost::kOff, SameHost::kAuto));

TEST(RankModel, RefusesAnArenaWithoutRoomForTheOptimizersState) {
  FlatModel flat = *FlatModel::Create(OneTensor(32), SameHost::kAuto, 1);
  const auto model = RankModel::Create(JobOf("adam"), flat);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(
      std::string(model.status().message()),
      HasSubstr("an arena with room for 1 optimizer slots; adam has 2"));
}

}  // namespace
}  // namespace psring
