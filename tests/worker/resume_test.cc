#include "worker/resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/testing/test_directory.h"
#include "worker/buffers.h"
#include "worker/checkpoint.h"
#include "worker/flat_parameters.h"
#include "worker/models/layers.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A run of a model with buffers, and with one slot of optimizer state, that has
// stopped after step 7.
class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() {
    spec_.set_model("norm");
    spec_.set_data("digits");
    spec_.set_dataset_size(100);
    spec_.set_batch_size(8);
    spec_.set_compress("none");
    spec_.mutable_optimizer()->set_name("momentum");
    spec_.mutable_optimizer()->set_momentum(0.5);
    module_.buffers()[0].tensor.fill_(2.5);
    flat_ = FlatOf(module_);
    for (float& p : flat_->parameters.span()) p = 1.5f;
  }

  static FlatModel FlatOf(const Module& module) {
    return *FlatModel::Create(*Layout::Create(ShapesOf(module), 1 << 20));
  }

  void Stop(int64_t step = 7) {
    const Layout& layout = flat_->layout;
    const std::vector<std::string> slots = {"momentum_buffer"};
    const std::vector<float> momentum(layout.num_elements(), 0.25f);
    Progress progress;
    progress.step = step;
    progress.model = spec_.model();
    progress.data = spec_.data();
    progress.cursor.emplace();
    progress.cursor->set_epoch(1);
    progress.cursor->set_samples(24);
    progress.dataset_size = spec_.dataset_size();
    progress.num_workers = 2;
    progress.batch_size = spec_.batch_size();
    progress.optimizer = spec_.optimizer().name();
    const absl::Status status = WriteCheckpoint(
        directory_, {progress, layout, slots, BuffersOf(module_)},
        [&](const std::string& directory) {
          const float* slot = momentum.data();
          return WriteStateRange(directory, layout, slots,
                                 {0, layout.num_elements()},
                                 flat_->parameters.data(), {slot});
        });
    ASSERT_TRUE(status.ok()) << status;
  }

  const std::string directory_ = testing::TestDirectory();
  proto::JobSpec spec_;
  const BatchNorm2d module_{20};
  std::optional<FlatModel> flat_;
};

TEST_F(ResumeTest, GoesOnWithWhatWasSaved) {
  Stop();
  const auto found = FindResumePoint(directory_, spec_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->progress.step, 7);
  const BatchNorm2d module{20};
  FlatModel flat = FlatOf(module);
  auto slots = LoadState(found->checkpoint, spec_, flat, module);
  ASSERT_TRUE(slots.ok()) << slots.status();
  EXPECT_EQ(flat.parameters.data()[0], 1.5f);
  ASSERT_EQ(slots->size(), 1u);
  EXPECT_EQ((*slots)[0].size(), flat.layout.num_elements());
  EXPECT_EQ((*slots)[0].data()[0], 0.25f);
  EXPECT_EQ(module.buffers()[0].tensor.select(0, 19).item<float>(), 2.5f);
}

TEST_F(ResumeTest, WithoutACheckpointThereIsNowhereToGoOn) {
  EXPECT_EQ(FindResumePoint(directory_, spec_).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ResumeTest, FallsBackToTheNewestThatIsWhole) {
  Stop(5);
  Stop(6);
  Stop();
  const std::string newest = directory_ + "/step-00000007";
  fs::resize_file(newest + "/model.safetensors", 100);
  fs::remove(directory_ + "/step-00000006/manifest.json");
  const auto found = FindResumePoint(directory_, spec_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->progress.step, 5);
  EXPECT_EQ(found->checkpoint, directory_ + "/step-00000005");
  EXPECT_THAT(found->damaged,
              ElementsAre(newest, directory_ + "/step-00000006"));
}

// It may be whole: nobody shall go on from an older one, or begin anew.
TEST_F(ResumeTest, EndsWhereTheNewestCannotBeRead) {
  Stop(6);
  Stop();
  const std::string manifest = directory_ + "/step-00000007/manifest.json";
  fs::remove(manifest);
  fs::create_symlink(manifest, manifest);
  const absl::Status status = FindResumePoint(directory_, spec_).status();
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step-00000007/manifest.json"),
                    HasSubstr("make it readable")));
}

TEST_F(ResumeTest, SaysWhatIsWrongWithEveryOneWhereNoneIsWhole) {
  Stop(6);
  Stop();
  fs::remove(directory_ + "/step-00000006/manifest.json");
  fs::resize_file(directory_ + "/step-00000007/model.safetensors", 100);
  const absl::Status status = FindResumePoint(directory_, spec_).status();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("step-00000006/manifest.json"),
                    HasSubstr("step-00000007/model.safetensors"),
                    HasSubstr("100 bytes")));
}

TEST_F(ResumeTest, RefusesAnotherModelAndAnotherOptimizer) {
  Stop();
  proto::JobSpec other_model = spec_;
  other_model.set_model("lenet");
  const absl::Status model = FindResumePoint(directory_, other_model).status();
  EXPECT_EQ(model.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(model.message()),
              AllOf(HasSubstr("--model: "),
                    HasSubstr(" was made with norm, this run uses lenet. "
                              "Give --model=norm, or another")));
  proto::JobSpec other_optimizer = spec_;
  other_optimizer.mutable_optimizer()->set_name("adam");
  const absl::Status optimizer =
      FindResumePoint(directory_, other_optimizer).status();
  EXPECT_EQ(optimizer.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(optimizer.message()), HasSubstr("--optimizer: "));
}

TEST_F(ResumeTest, MayGoOnWithOtherDataAtTheSamePartOfAnEpoch) {
  Stop();
  spec_.set_data("mnist");
  spec_.set_dataset_size(200);
  const auto found = FindResumePoint(directory_, spec_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->progress.cursor->epoch(), 1);
  EXPECT_EQ(found->progress.cursor->samples(), 48);
}

TEST_F(ResumeTest, TakesTheCursorOfTheManifest) {
  Stop();
  spec_.set_batch_size(16);
  const auto found = FindResumePoint(directory_, spec_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->progress.cursor->epoch(), 1);
  EXPECT_EQ(found->progress.cursor->samples(), 24);
}

// A manifest that does not say it was written by a run of the same policy.
TEST_F(ResumeTest, KnowsHowManyUpdatesWereMade) {
  Stop();
  const int64_t steps = FindResumePoint(directory_, spec_)->progress.step;
  EXPECT_EQ(FindResumePoint(directory_, spec_)->progress.updates, steps);
  spec_.set_sync(proto::ASYNC);
  EXPECT_EQ(FindResumePoint(directory_, spec_)->progress.updates, 2 * steps);
}

TEST_F(ResumeTest, SaysHowTheStepsChange) {
  Stop();
  const Progress then = FindResumePoint(directory_, spec_)->progress;
  spec_.set_first_step(then.step);
  *spec_.mutable_first_cursor() = *then.cursor;
  EXPECT_EQ(SizeChange(then, spec_, PlanOf(spec_, 2), 2), "");
  EXPECT_EQ(SizeChange(then, spec_, PlanOf(spec_, 1), 1),
            "1 worker with a batch size of 8 continue what 2 with 8 have "
            "begun: step 7 takes up epoch 2 at sample 24 of 100, which ends at "
            "step 17; an epoch has 13 steps in place of 7, and the learning "
            "rate's schedule follows samples");
}

}  // namespace
}  // namespace psring
