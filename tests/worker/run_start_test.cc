#include "worker/run_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "common/model/layout.h"
#include "tests/testing/local_job.h"
#include "tests/testing/test_directory.h"
#include "worker/checkpoint.h"
#include "worker/checkpoint_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::ElementsAre;

// Two workers, both with the directory of checkpoints of an earlier run.
class RunStartTest : public ::testing::Test {
 protected:
  RunStartTest() {
    job_.spec = SmallSpec(proto::RING, proto::BSP);
    job_.num_workers = 2;
    proto::TensorShape shape;
    shape.set_name("w");
    shape.add_shape(10);
    layout_ = *Layout::Create({shape}, 1 << 20);
    values_.assign(layout_->num_elements(), 1.5f);
  }

  void Stop(int64_t step) {
    Progress progress;
    progress.step = step;
    progress.cursor.emplace();
    progress.model = job_.spec.model();
    progress.optimizer = job_.spec.optimizer().name();
    const CheckpointContents contents{.progress = progress,
                                      .layout = *layout_,
                                      .slot_names = {},
                                      .extras = {}};
    const absl::Status status =
        WriteCheckpoint(directory_, contents, [&](const std::string& dir) {
          return WriteStateRange(dir, *layout_, {},
                                 {0, layout_->num_elements()}, values_.data(),
                                 {});
        });
    ASSERT_TRUE(status.ok()) << status;
  }

  std::string PathOf(int64_t step) const {
    return directory_ + "/" + CheckpointName(step);
  }

  // The step that all workers begin with.
  int64_t Resume() {
    int64_t first_step = -1;
    const auto results = RunLocalJob(job_, [&](LocalWorker& worker) {
      proto::JobSpec spec = job_.spec;
      const StartWish wish = {.directory = directory_, .resume = true};
      const auto start =
          AgreeOnStart(*worker.member, wish, worker.cancellation, spec);
      if (worker.rank == 0) first_step = spec.first_step();
      return start.status();
    });
    EXPECT_THAT(results, Each(absl::OkStatus()));
    return first_step;
  }

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      const std::string name = entry.path().filename();
      if (name != ".lock") names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  const std::string directory_ = testing::TestDirectory();
  LocalJobOptions job_;
  std::optional<Layout> layout_;
  std::vector<float> values_;
};

// Else a damaged one would count among those that --checkpoint-keep keeps.
TEST_F(RunStartTest, WhatIsDamagedIsMovedAside) {
  for (const int64_t step : {4, 5, 6, 7}) Stop(step);
  fs::remove(PathOf(7) + "/manifest.json");
  fs::resize_file(PathOf(6) + "/model.safetensors", 50);
  EXPECT_EQ(Resume(), 5);
  EXPECT_THAT(Names(),
              ElementsAre("step-00000004", "step-00000005",
                          "step-00000006.damaged", "step-00000007.damaged"));
  RemoveOldCheckpoints(directory_, 7, 2);
  EXPECT_THAT(Names(), ::testing::Contains("step-00000004"));
}

}  // namespace
}  // namespace psring
