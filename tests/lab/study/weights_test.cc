#include "lab/study/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace psring {
namespace {

namespace fs = std::filesystem;
using testing::EndsWith;
using testing::HasSubstr;

// A file of `text` below the test's folder, written `age` seconds ago.
std::string Write(const std::string& name, const std::string& text,
                  int age = 0) {
  const fs::path path = fs::path(testing::TempDir()) / name;
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
  fs::last_write_time(
      path, fs::file_time_type::clock::now() - std::chrono::seconds(age));
  return path.string();
}

TEST(FindLastWeights, TakesTheNewestOfAllCheckpoints) {
  Write("c/step-9/model.safetensors", "old", 20);
  Write("c/step-10/model.safetensors", "new", 10);
  Write("c/step-10/optimizer.safetensors", "other");
  const auto path = FindLastWeights(testing::TempDir() + "/c");
  ASSERT_TRUE(path.ok());
  EXPECT_THAT(*path, EndsWith("/c/step-10/model.safetensors"));
}

TEST(FindLastWeights, SaysWhereItLooked) {
  const auto path = FindLastWeights("/no/such/folder");
  EXPECT_EQ(path.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(path.status().message()),
              HasSubstr("/no/such/folder"));
}

TEST(Crc32OfFile, AgreesWithTheStandardsCheckValue) {
  EXPECT_EQ(*Crc32OfFile(Write("check", "123456789")), 0xcbf43926u);
  EXPECT_FALSE(Crc32OfFile("/no/such/file").ok());
}

}  // namespace
}  // namespace psring
