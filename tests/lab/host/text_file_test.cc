#include "lab/host/text_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::HasSubstr;

TEST(TextFileTest, ReplacesWhatWasThere) {
  const std::string path = testing::TestDirectory() + "/script.py";
  ASSERT_TRUE(WriteTextFile(path, "print(1)\nprint(2)\n").ok());
  ASSERT_TRUE(WriteTextFile(path, "print(3)\n").ok());
  EXPECT_EQ(testing::ReadFile(path), "print(3)\n");
}

TEST(TextFileTest, AFailureNamesThePathAndTheReason) {
  const std::string folder = testing::TestDirectory();
  EXPECT_THAT(
      WriteTextFile(folder + "/none/script.py", "").ToString(),
      HasSubstr("cannot write " + folder + "/none/script.py: No such file"));
  const std::string full = folder + "/script.py";
  std::filesystem::create_symlink("/dev/full", full);
  EXPECT_THAT(WriteTextFile(full, "print(1)").ToString(),
              HasSubstr("cannot write " + full + ": No space left"));
}

}  // namespace
}  // namespace psring
