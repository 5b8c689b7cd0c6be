#include "common/state/file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <utility>

#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::TestDirectory;

TEST(FileTest, MakesAFileThatOthersMayReadUnlessToldOtherwise) {
  const std::string folder = TestDirectory();
  const auto mode_of = [](const std::string& path) {
    struct stat info = {};
    stat(path.c_str(), &info);
    return info.st_mode & 0777;
  };
  const mode_t mask = umask(022);
  ASSERT_TRUE(File::Open(folder + "/data", O_RDWR | O_CREAT).ok());
  ASSERT_TRUE(File::Open(folder + "/lock", O_RDWR | O_CREAT, 0600).ok());
  umask(mask);
  EXPECT_EQ(mode_of(folder + "/data"), 0644);
  EXPECT_EQ(mode_of(folder + "/lock"), 0600);
}

TEST(FileTest, ReadsWhatWasWrittenAnywhere) {
  const std::string path = TestDirectory() + "/data";
  File file = *File::Open(path, O_RDWR | O_CREAT);
  EXPECT_TRUE(file.Resize(10).ok());
  EXPECT_TRUE(file.WriteAt(4, "abc", 3).ok());
  EXPECT_TRUE(file.Sync().ok());
  std::string bytes(10, '?');
  EXPECT_TRUE(file.ReadAt(0, bytes.data(), 10).ok());
  EXPECT_EQ(bytes, std::string("\0\0\0\0abc\0\0\0", 10));
  EXPECT_EQ(*file.Size(), 10);
}

TEST(FileTest, MissingFileIsNotFound) {
  const std::string path = TestDirectory() + "/missing";
  const absl::Status status = File::Open(path, O_RDONLY).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr(path), HasSubstr("No such file")));
  ASSERT_TRUE(File::Open(path, O_RDWR | O_CREAT).ok());
  // Nor is there anything below a file.
  EXPECT_TRUE(absl::IsNotFound(File::Open(path + "/below", O_RDONLY).status()));
}

TEST(FileTest, EndOfFileIsDataLossWithThePosition) {
  const std::string path = TestDirectory() + "/short";
  File file = *File::Open(path, O_RDWR | O_CREAT);
  EXPECT_TRUE(file.WriteAt(0, "abc", 3).ok());
  char bytes[5];
  const absl::Status status = file.ReadAt(1, bytes, 5);
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(status.message(), HasSubstr("ends at byte 3, 3 bytes too soon"));
}

TEST(FileTest, FullDiskIsNamedWithTheCallAndTheFile) {
  File file = *File::Open("/dev/full", O_RDWR);
  const absl::Status status = file.WriteAt(0, "abc", 3);
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(status.message(), HasSubstr("write /dev/full: No space left"));
  EXPECT_TRUE(absl::IsResourceExhausted(FileError("write", "f", EDQUOT)));
  EXPECT_TRUE(absl::IsInternal(FileError("write", "f", EIO)));
}

TEST(FileTest, FailedCallsGiveTheSystemsReason) {
  EXPECT_THAT(File::Open("/", O_RDWR).status().message(),
              HasSubstr("open /: Is a directory"));
  File device = *File::Open("/dev/null", O_RDWR);
  EXPECT_THAT(device.Resize(5).message(), HasSubstr("ftruncate /dev/null"));
  EXPECT_THAT(device.Sync().message(), HasSubstr("fsync /dev/null"));
}

TEST(FileTest, WhatWouldBlockOrHasNoEndIsNoFile) {
  const std::string pipe = TestDirectory() + "/pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const auto& [path, flags] :
       {std::pair(pipe, O_RDONLY), std::pair(pipe, O_RDWR),
        std::pair(std::string("/dev/zero"), O_RDONLY)}) {
    const absl::Status status = File::Open(path, flags).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal) << path;
    EXPECT_THAT(status.message(),
                HasSubstr("open " + path + ": it is no file on a disk"));
  }
}

TEST(FileTest, KnowsWhetherItsPathStillLeadsToIt) {
  const std::string folder = TestDirectory() + "/folder";
  const std::string path = folder + "/file", other = folder + "/other";
  std::filesystem::create_directory(folder);
  const File file = *File::Open(path, O_RDWR | O_CREAT);
  const auto in_place = [&] { return file.IsInPlace().value(); };
  EXPECT_TRUE(in_place());
  std::filesystem::rename(path, other);
  EXPECT_FALSE(in_place());
  testing::WriteFile(path, "another");
  EXPECT_FALSE(in_place());
  std::filesystem::rename(other, path);
  EXPECT_TRUE(in_place());
  std::filesystem::remove_all(folder);
  EXPECT_FALSE(in_place());
  testing::WriteFile(folder, "no folder");
  EXPECT_FALSE(in_place());
}

TEST(FileTest, ALockIsForOneUntilItGoes) {
  const std::string path = TestDirectory() + "/locked";
  File second = *File::Open(path, O_RDWR | O_CREAT);
  {
    File first = *File::Open(path, O_RDWR);
    EXPECT_TRUE(first.Lock().ok());
    EXPECT_TRUE(absl::IsUnavailable(second.Lock()));
  }
  EXPECT_TRUE(second.Lock().ok());
}

}  // namespace
}  // namespace psring
