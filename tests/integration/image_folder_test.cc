// Jobs that train on a folder of pictures, which they decode meanwhile.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/test_directory.h"
#include "tests/worker/data/pictures.h"

namespace psring {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::ReadFile;
using testing::TestDirectory;
using testing::WriteFile;
using testing::WriteTinyImageFolder;

constexpr int kPictures = 40;  // a class, to train on

class ImageFolderJob : public ::testing::Test {
 protected:
  void SetUp() override { WriteTinyImageFolder(pictures_, kPictures, 10); }

  Ran Run(LaunchedJob job, const std::string& checkpoints, int steps,
          const std::vector<std::string>& more = {}) {
    job.worker_flags = {absl::StrCat("--data=images:", pictures_, ",size=16"),
                        "--model=mlp:768-16-2",
                        "--batch-size=8",
                        "--lr=0.1",
                        absl::StrCat("--steps=", steps),
                        "--checkpoint-dir=" + checkpoints};
    job.worker_flags.insert(job.worker_flags.end(), more.begin(), more.end());
    return RunLaunch(job);
  }

  std::string Train(const LaunchedJob& job, const std::string& name, int steps,
                    const std::vector<std::string>& more = {}) {
    const std::string checkpoints = folder_ + "/" + name;
    const Ran ran = Run(job, checkpoints, steps, more);
    EXPECT_EQ(ran.code, 0) << ran.output;
    output_ = ran.output;
    return CheckpointAt(checkpoints, steps);
  }

  const std::string folder_ = TestDirectory();
  const std::string pictures_ = folder_ + "/pictures";
  std::string output_;
};

// Eight epochs; an epoch is five steps of two workers.
TEST_F(ImageFolderJob, LearnsTheSameBitsInBothTopologiesWithAnyThreads) {
  const std::string ring =
      Train({.mode = "ring"}, "ring", 40, {"--loader-threads=3"});
  EXPECT_THAT(output_, ContainsRegex("test accuracy (1.0000|0.9)"));
  const std::string ps = Train({.mode = "ps", .servers = 2}, "ps", 40);
  EXPECT_EQ(CheckpointDifference(ring, ps), "");
  const std::string plain = Train({.mode = "ring"}, "plain", 40,
                                  {"--loader-threads=1", "--channels-last"});
  EXPECT_EQ(CheckpointDifference(ring, plain), "");
}

TEST_F(ImageFolderJob, GoesOnInTheMiddleOfAnEpochAsIfItHadNotStopped) {
  const std::string whole = Train({.mode = "ring"}, "whole", 13);
  Train({.mode = "ring"}, "parts", 7);
  const std::string resumed =
      Train({.mode = "ring"}, "parts", 13, {"--resume"});
  EXPECT_EQ(CheckpointDifference(whole, resumed), "");
}

TEST_F(ImageFolderJob, EndsAtADamagedPictureAndNamesIt) {
  const std::string path = pictures_ + "/train/top/6.JPEG";
  WriteFile(path, ReadFile(path).substr(0, 300));
  for (const std::string mode : {"ring", "ps"}) {
    const Ran ran = Run({.mode = mode}, folder_ + "/" + mode, 40);
    EXPECT_NE(ran.code, 0);
    EXPECT_THAT(ran.output, HasSubstr(path + ": damaged"));
    EXPECT_THAT(ran.output, HasSubstr("Replace the file or remove it"));
  }
}

TEST_F(ImageFolderJob, IsRefusedWhereTheFolderIsNone) {
  std::filesystem::remove_all(pictures_ + "/val/top");
  const Ran ran = Run({.mode = "ring"}, folder_ + "/none", 1);
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.output, HasSubstr("top is in one of them only"));
}

}  // namespace
}  // namespace psring
