#include "worker/resume.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "nlohmann/json.hpp"
#include "tests/testing/captured_log.h"
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
    progress.num_workers = num_workers_;
    progress.batch_size = spec_.batch_size();
    progress.seed = spec_.seed();
    progress.updates = updates_;
    progress.bucket_bytes = bucket_bytes_;
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

  // As if another psring had written the manifest of step 7.
  void Rewrite(const std::function<void(nlohmann::json&)>& change) const {
    const std::string path = directory_ + "/step-00000007/manifest.json";
    auto manifest = nlohmann::json::parse(testing::ReadFile(path));
    manifest.erase("crc32");
    change(manifest);
    const std::string text = manifest.dump();
    manifest["crc32"] = crc32(0, reinterpret_cast<const Bytef*>(text.data()),
                              static_cast<uInt>(text.size()));
    testing::WriteFile(path, manifest.dump(2) + "\n");
  }

  const std::string directory_ = testing::TestDirectory();
  proto::JobSpec spec_;
  std::optional<int64_t> updates_;
  int num_workers_ = 2;
  int64_t bucket_bytes_ = 0;
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
              AllOf(HasSubstr("step-00000007/model.safetensors"),
                    HasSubstr("100 bytes"), HasSubstr("; "),
                    HasSubstr("step-00000006/manifest.json")));
}

TEST_F(ResumeTest, PassesOverOneWhoseManifestLacksAFile) {
  Stop(6);
  Stop();
  Rewrite([](auto& manifest) { manifest["files"].erase(kOptimizerFile); });
  const auto point = FindResumePoint(directory_, spec_);
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(point->progress.step, 6);
  EXPECT_THAT(point->damaged, ElementsAre(HasSubstr("step-00000007")));
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

TEST_F(ResumeTest, RefusesAFormatThatIsNotKnownAndNoOlderOneInItsPlace) {
  Stop(6);
  Stop();
  Rewrite([](auto& manifest) { manifest["format"] = 3; });
  const absl::Status status = FindResumePoint(directory_, spec_).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_TRUE(absl::EndsWith(status.message(), "another version of psring"))
      << status;
}

// Two workers took 8 samples each in a step, and 7 steps for 100.
TEST_F(ResumeTest, WithoutACursorItFollowsFromTheStep) {
  Stop();
  Rewrite([](auto& manifest) {
    manifest["format"] = 1;
    manifest["step"] = 10;
    manifest.erase("cursor");
    manifest.erase("dataset_size");
  });
  const CapturedLog log;
  const auto found = FindResumePoint(directory_, spec_);
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->progress.cursor->epoch(), 1);
  EXPECT_EQ(found->progress.cursor->samples(), 48);
  EXPECT_EQ(log.Count("--data="), 0);
}

TEST_F(ResumeTest, WarnsOfOtherDataAndOfAnotherSeed) {
  Stop();
  const auto warnings = [&](const char* flag) {
    const CapturedLog log;
    EXPECT_TRUE(FindResumePoint(directory_, spec_).ok());
    return log.Count(flag);
  };
  EXPECT_EQ(warnings("was made with"), 0);
  spec_.set_data("digits,crc32=12345678");  // as newer ones name it
  EXPECT_EQ(warnings("was made with"), 0);
  spec_.set_data("digits2");
  EXPECT_EQ(warnings("--data=digits: this run continues with digits2"), 1);
  spec_.set_data("digits");
  spec_.set_dataset_size(200);
  EXPECT_EQ(warnings("--data="), 1);
  spec_.set_dataset_size(100);
  spec_.set_seed(3);
  EXPECT_EQ(warnings("--seed=0: this run continues with 3"), 1);
}

// Which give the sums of three workers or more another order.
TEST_F(ResumeTest, WarnsOfBucketsOfAnotherSize) {
  int64_t step = 0;
  const auto warnings = [&](int num_workers, int64_t bucket_bytes) {
    num_workers_ = num_workers;
    bucket_bytes_ = bucket_bytes;
    Stop(++step);
    const CapturedLog log;
    EXPECT_TRUE(FindResumePoint(directory_, spec_).ok());
    return log.Count("--bucket-mb=0.5: this run continues with 25");
  };
  spec_.set_bucket_bytes(25 << 20);
  EXPECT_EQ(warnings(3, 1 << 19), 1);
  EXPECT_EQ(warnings(2, 1 << 19), 0);
  EXPECT_EQ(warnings(3, 25 << 20), 0);
  EXPECT_EQ(warnings(3, 0), 0);
}

TEST_F(ResumeTest, WarnsOfStateThatIsInNoCheckpoint) {
  Stop();
  const auto warnings = [&](const char* flag) {
    const CapturedLog log;
    FlatModel flat = FlatOf(module_);
    EXPECT_TRUE(
        LoadState(directory_ + "/step-00000007", spec_, flat, module_).ok());
    return log.Count(flag);
  };
  spec_.set_local_steps(1);
  EXPECT_EQ(warnings("--compress"), 0);
  EXPECT_EQ(warnings("--local-steps"), 0);
  spec_.set_compress("int8");
  EXPECT_EQ(warnings("--compress=int8: what was lost"), 1);
  spec_.set_local_steps(4);
  EXPECT_EQ(warnings("--local-steps=4: of the optimizer's states"), 1);
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
  fs::remove_all(directory_ + "/step-00000007");
  updates_ = 11;
  Stop();
  EXPECT_EQ(FindResumePoint(directory_, spec_)->progress.updates, 11);
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
  spec_.set_batch_size(5);
  spec_.set_drop_last(true);  // 6 steps of 8 samples a worker, 10 of 5
  EXPECT_THAT(SizeChange(then, spec_, PlanOf(spec_, 2), 2),
              HasSubstr("; an epoch has 10 steps in place of 6, "));
}

}  // namespace
}  // namespace psring
