#include "ring/rank_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
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

// One rank has all state.
const std::vector<OwnedSlice> kAll = {{{0, 32}, 0}};

// How many of these pages are in memory.
int ResidentPages(float* data, int pages) {
  std::vector<unsigned char> in_memory(pages);
  EXPECT_EQ(mincore(data, pages * 4096, in_memory.data()), 0);
  return static_cast<int>(
      std::count_if(in_memory.begin(), in_memory.end(),
                    [](unsigned char page) { return (page & 1) != 0; }));
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
  ASSERT_TRUE(model->TakeSlots({}, kAll).ok());
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
  ASSERT_TRUE(model->TakeSlots(std::move(slots), kAll).ok());
  for (float& p : flat_.parameters.span()) p = 10.0f;
  const std::vector<float> mean(32, 1.0f);
  model->Update(model->bucket(0), {0, 32}, mean.data(), 7);
  EXPECT_EQ(model->slot(0).data()[3], 3.0f);
  EXPECT_EQ(flat_.parameters.data()[3], 8.5f);
  EXPECT_EQ(model->slot(0).data()[4], 1.0f);
  EXPECT_EQ(flat_.parameters.data()[4], 9.5f);
  if (GetParam() == SameHost::kOff) return;
  EXPECT_EQ(flat_.arena->slot(0)[3], 3.0f);  // where its peers read it
}

TEST_P(RankModelTest, UpdatesARangeAlone) {
  auto model = RankModel::Create(JobOf("momentum"), flat_);
  ASSERT_TRUE(model->TakeSlots({}, kAll).ok());
  const std::vector<float> mean(16, 2.0f);
  model->Update(model->bucket(0), {16, 32}, mean.data(), 0);
  EXPECT_EQ(flat_.parameters.data()[15], 0.0f);
  EXPECT_EQ(flat_.parameters.data()[16], -1.0f);
  EXPECT_EQ(model->slot(0).data()[15], 0.0f);
  EXPECT_EQ(model->slot(0).data()[31], 2.0f);
}

// Rank 0 has been handed all of it; both ranks keep what they own.
TEST_P(RankModelTest, KeepsMemoryForItsOwnStateAlone) {
  constexpr int kPages = 64;
  constexpr int64_t kElements = kPages * 1024;
  const std::vector<OwnedSlice> halves = {{{0, kElements / 2}, 0},
                                          {{kElements / 2, kElements}, 1}};
  FlatModel flat = *FlatModel::Create(OneTensor(kElements), GetParam(), 1);
  proto::Welcome job = JobOf("momentum");
  auto model = RankModel::Create(job, flat);
  std::vector<FlatBuffer> slots;
  slots.push_back(*FlatBuffer::Create(kElements));
  std::fill_n(slots[0].data(), kElements, 3.0f);
  ASSERT_TRUE(model->TakeSlots(std::move(slots), halves).ok());
  EXPECT_EQ(ResidentPages(model->slot(0).data(), kPages), kPages);
  model->ReleaseOthersSlots();
  EXPECT_EQ(ResidentPages(model->slot(0).data(), kPages), kPages / 2);
  EXPECT_EQ(model->slot(0).data()[kElements / 2 - 1], 3.0f);
  EXPECT_EQ(model->slot(0).data()[kElements / 2], 0.0f);

  FlatModel other = *FlatModel::Create(OneTensor(kElements), GetParam(), 1);
  job.set_rank(1);
  auto second = RankModel::Create(job, other);
  ASSERT_TRUE(second->TakeSlots({}, halves).ok());
  EXPECT_LE(ResidentPages(second->slot(0).data(), kPages), kPages / 2);
  const std::vector<float> mean(kElements / 2, 1.0f);
  second->Update(second->bucket(0), {kElements / 2, kElements}, mean.data(), 0);
  EXPECT_EQ(ResidentPages(second->slot(0).data(), kPages), kPages / 2);
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
