#include "worker/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using testing::ReadFile;
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

// As its writer would write it: with the checksum of all the rest.
std::string WithChecksum(json object) {
  const std::string text = object.dump();
  object["crc32"] = crc32(0, reinterpret_cast<const Bytef*>(text.data()),
                          static_cast<uInt>(text.size()));
  return object.dump(2) + "\n";
}

Manifest SomeManifest() {
  Manifest manifest;
  manifest.progress.step = 12;
  manifest.progress.cursor.emplace();
  manifest.progress.cursor->set_epoch(1);
  manifest.progress.cursor->set_samples(128);
  manifest.progress.dataset_size = 256;
  manifest.progress.num_workers = 4;
  manifest.progress.model = "lenet";
  manifest.files["a"] = {10, 0xffffffff};
  return manifest;
}

TEST(ManifestTest, ReadsWhatItWrote) {
  const std::string folder = TestDirectory();
  Manifest manifest = SomeManifest();
  manifest.progress.batch_size = 8;
  manifest.progress.seed = 3;
  manifest.progress.data = "digits";
  manifest.progress.optimizer = "momentum";
  manifest.progress.updates = 48;
  manifest.progress.bucket_bytes = 1 << 20;
  ASSERT_TRUE(WriteManifest(folder, manifest).ok());
  const auto read = ReadManifest(folder);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->progress.step, 12);
  EXPECT_EQ(read->progress.cursor->epoch(), 1);
  EXPECT_EQ(read->progress.cursor->samples(), 128);
  EXPECT_EQ(read->progress.dataset_size, 256);
  EXPECT_EQ(read->progress.num_workers, 4);
  EXPECT_EQ(read->progress.model, "lenet");
  EXPECT_EQ(read->progress.batch_size, 8);
  EXPECT_EQ(read->progress.seed, 3);
  EXPECT_EQ(read->progress.data, "digits");
  EXPECT_EQ(read->progress.optimizer, "momentum");
  EXPECT_EQ(read->progress.updates, 48);
  EXPECT_EQ(read->progress.bucket_bytes, 1 << 20);
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
  EXPECT_FALSE(read->progress.updates.has_value());
  EXPECT_EQ(read->progress.dataset_size, 0);
  EXPECT_EQ(read->progress.step, 12);
  EXPECT_EQ(read->progress.num_workers, 4);
  EXPECT_EQ(read->progress.batch_size, 8);
  EXPECT_EQ(read->files.size(), 2u);
}

// Each field left out, of another type, or out of its range, in a manifest
// whose checksum is right.
TEST(ManifestTest, RefusesNonsense) {
  const std::string folder = TestDirectory();
  ASSERT_TRUE(WriteManifest(folder, SomeManifest()).ok());
  json good = json::parse(ReadFile(folder + "/manifest.json"));
  good.erase("crc32");
  ASSERT_EQ(ReadFile(folder + "/manifest.json"), WithChecksum(good));
  std::vector<json> bad = {json::array(), json(), 7, "text", json::object()};
  for (const auto& [key, value] : good.items()) {
    bad.push_back(good);
    bad.back().erase(key);
    for (const json& other :
         {json(), json("x"), json(-1), json(1.5), json(1e300), json({1}),
          json({{"a", 1}}), json({{"a", {{"bytes", -1}, {"crc32", 1}}}}),
          json({{"a", {{"bytes", 1}, {"crc32", 1ull << 32}}}}),
          json({{"epoch", 0}, {"samples", 256}}),
          json({{"epoch", -1}, {"samples", 0}})}) {
      if (other.type() == value.type() && !other.is_object()) continue;
      bad.push_back(good);
      bad.back()[key] = other;
    }
  }
  for (const char* key : {"workers", "batch_size"}) {
    bad.push_back(good);
    bad.back()[key] = 1ull << 32;
  }
  for (const json& object : bad) {
    WriteFile(folder + "/manifest.json",
              object.is_object() ? WithChecksum(object) : object.dump(2));
    const absl::Status status = ReadManifest(folder).status();
    EXPECT_FALSE(status.ok()) << object;
    EXPECT_THAT(std::string(status.message()), HasSubstr(folder));
  }
}

TEST(ManifestTest, RefusesWhatIsNoManifestByFar) {
  const std::string folder = TestDirectory();
  for (const std::string& text :
       {std::string(), std::string("\xff\xfe"), std::string(1 << 20, '['),
        std::string(3 << 20, ' ')}) {
    WriteFile(folder + "/manifest.json", text);
    EXPECT_TRUE(absl::IsDataLoss(ReadManifest(folder).status()));
  }
}

TEST(ManifestTest, AChangeOfTheTextIsDamage) {
  const std::string folder = TestDirectory();
  ASSERT_TRUE(WriteManifest(folder, SomeManifest()).ok());
  const std::string text = ReadFile(folder + "/manifest.json");
  std::string later = text;
  const std::string step = "\"step\": 12";
  ASSERT_NE(text.find(step), std::string::npos);
  later.replace(text.find(step), step.size(), "\"step\": 13");
  for (const std::string& changed : {later, text + " ", " " + text}) {
    WriteFile(folder + "/manifest.json", changed);
    EXPECT_TRUE(absl::IsDataLoss(ReadManifest(folder).status())) << changed;
  }
}

TEST(ManifestTest, ANewerFormatIsNoDamage) {
  const std::string folder = TestDirectory();
  WriteFile(folder + "/manifest.json", WithChecksum({{"format", 3}}));
  const absl::Status status = ReadManifest(folder).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("another version"));
}

TEST(ManifestTest, ATextThatIsNotUtf8CannotBeWritten) {
  const std::string folder = TestDirectory();
  Manifest manifest = SomeManifest();
  manifest.progress.data = "digits:\xff";
  EXPECT_THAT(std::string(WriteManifest(folder, manifest).message()),
              HasSubstr(folder));
}

}  // namespace
}  // namespace psring
