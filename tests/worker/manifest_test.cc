#include "worker/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using testing::TestDirectory;
using testing::WriteFile;

// As a run of four workers wrote it before there were cursors.
constexpr char kFormat1[] = R"({
  "batch_size": 8,
  "crc32": 2776088281,
  "data": "digits:train=256,test=8",
  "files": {
    "model.safetensors": {
      "bytes": 88168,
      "crc32": 1
    },
    "optimizer.safetensors": {
      "bytes": 88344,
      "crc32": 2
    }
  },
  "format": 1,
  "model": "lenet",
  "optimizer": "momentum",
  "seed": 3,
  "step": 12,
  "workers": 4
}
)";

TEST(ManifestTest, ReadsWhatItWrote) {
  const std::string folder = TestDirectory();
  Manifest manifest;
  manifest.progress.step = 12;
  manifest.progress.cursor.emplace();
  manifest.progress.cursor->set_epoch(1);
  manifest.progress.cursor->set_samples(128);
  manifest.progress.dataset_size = 256;
  manifest.progress.num_workers = 4;
  manifest.progress.model = "lenet";
  manifest.files["a"] = {10, 0xffffffff};
  ASSERT_TRUE(WriteManifest(folder, manifest).ok());
  const auto read = ReadManifest(folder);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->progress.step, 12);
  EXPECT_EQ(read->progress.cursor->epoch(), 1);
  EXPECT_EQ(read->progress.cursor->samples(), 128);
  EXPECT_EQ(read->progress.dataset_size, 256);
  EXPECT_EQ(read->progress.num_workers, 4);
  EXPECT_EQ(read->progress.model, "lenet");
  ASSERT_EQ(read->files.size(), 1u);
  EXPECT_EQ(read->files.at("a").size_bytes, 10u);
  EXPECT_EQ(read->files.at("a").crc, 0xffffffffu);
}

TEST(ManifestTest, ReadsAnOldOneThatHasNoCursor) {
  const std::string folder = TestDirectory();
  WriteFile(folder + "/manifest.json", kFormat1);
  const auto read = ReadManifest(folder);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_FALSE(read->progress.cursor.has_value());
  EXPECT_EQ(read->progress.dataset_size, 0);
  EXPECT_EQ(read->progress.step, 12);
  EXPECT_EQ(read->progress.num_workers, 4);
  EXPECT_EQ(read->progress.batch_size, 8);
  EXPECT_EQ(read->files.size(), 2u);
}

}  // namespace
}  // namespace psring
