#include "common/net/key_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

int ModeOf(const std::string& path) {
  struct stat about = {};
  EXPECT_EQ(stat(path.c_str(), &about), 0) << path;
  return static_cast<int>(about.st_mode & 07777);
}

class KeyFileTest : public ::testing::Test {
 protected:
  const std::string folder_ = testing::TestDirectory();
  const std::string path_ = absl::StrCat(folder_, "/a/b/key");
  const Secret secret_ = Secret::Random();
};

TEST_F(KeyFileTest, OnlyItsOwnerReadsWhatIsWritten) {
  ASSERT_EQ(WriteKeyFile(path_, secret_, /*overwrite=*/false),
            absl::OkStatus());
  EXPECT_EQ(ModeOf(path_), 0600);
  EXPECT_EQ(ModeOf(absl::StrCat(folder_, "/a/b")), 0700);
  const auto read = ReadKeyFile(path_);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToText(), secret_.ToText());
}

// A device would be gone for all programs.
TEST_F(KeyFileTest, TakesThePlaceOfAKeyAndOfNothingElse) {
  const std::string pipe = absl::StrCat(folder_, "/pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(
      std::string(WriteKeyFile(pipe, secret_, /*overwrite=*/true).message()),
      HasSubstr(pipe + " is not a file"));
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(WriteKeyFile(path_, secret_, /*overwrite=*/true),
              absl::OkStatus());
  }
}

// Of which nothing is left.
TEST_F(KeyFileTest, AKeyThatDoesNotFitIsNamed) {
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit full = {0, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  const absl::Status status = WriteKeyFile(path_, secret_, /*overwrite=*/false);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cannot write the key " + path_),
                    HasSubstr("File too large")));
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/a/b"));
}

TEST_F(KeyFileTest, WhatOthersMayReadIsRefusedWithTheRemedy) {
  ASSERT_EQ(WriteKeyFile(path_, secret_, /*overwrite=*/false),
            absl::OkStatus());
  for (const mode_t mode : {0644, 0640, 0604, 0620, 0601}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    const auto read = ReadKeyFile(path_);
    ASSERT_EQ(read.status().code(), absl::StatusCode::kPermissionDenied)
        << mode;
    EXPECT_THAT(std::string(read.status().message()),
                HasSubstr(absl::StrCat("chmod 600 ", path_)));
  }
  ASSERT_EQ(chmod(path_.c_str(), 0400), 0);
  EXPECT_TRUE(ReadKeyFile(path_).ok());
}

TEST_F(KeyFileTest, WhatAnotherUserOwnsIsRefusedWithTheRemedy) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives a file away";
  ASSERT_EQ(WriteKeyFile(path_, secret_, /*overwrite=*/false),
            absl::OkStatus());
  ASSERT_EQ(chown(path_.c_str(), 4711, 0), 0);
  const auto read = ReadKeyFile(path_);
  ASSERT_EQ(read.status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(std::string(read.status().message()),
              AllOf(HasSubstr("belongs to user 4711"),
                    HasSubstr(absl::StrCat("chown 0 ", path_))));
}

// As on a host with vm.memfd_noexec=1.
TEST_F(KeyFileTest, ADescriptorMayHaveSealsOfTheKernelsOwn) {
  const int fd = memfd_create("key", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  const std::string text = secret_.ToText();
  ASSERT_EQ(write(fd, text.data(), text.size()),
            static_cast<ssize_t>(text.size()));
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS,
                  F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL |
                      F_SEAL_FUTURE_WRITE),
            0);
  const auto read = ReadKeyDescriptor(fd);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->ToText(), text);
  close(fd);
}

TEST_F(KeyFileTest, AKeyThatIsThereStays) {
  ASSERT_EQ(WriteKeyFile(path_, secret_, /*overwrite=*/false),
            absl::OkStatus());
  const Secret other = Secret::Random();
  EXPECT_EQ(WriteKeyFile(path_, other, /*overwrite=*/false).code(),
            absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(ReadKeyFile(path_)->ToText(), secret_.ToText());
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  ASSERT_EQ(WriteKeyFile(path_, other, /*overwrite=*/true), absl::OkStatus());
  EXPECT_EQ(ReadKeyFile(path_)->ToText(), other.ToText());
}

TEST_F(KeyFileTest, NamesTheFileThatHoldsNoKey) {
  EXPECT_EQ(ReadKeyFile(path_).status().code(), absl::StatusCode::kNotFound);
  const std::string notes = absl::StrCat(folder_, "/notes");
  std::ofstream(notes) << "dear diary";
  ASSERT_EQ(chmod(notes.c_str(), 0600), 0);
  const auto read = ReadKeyFile(notes);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(read.status().message()), HasSubstr(notes));
  EXPECT_EQ(ReadKeyFile(folder_).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(KeyFileTest, ADescriptorIsReadAgainAndNotHandedOn) {
  auto key = KeyDescriptor::Create(secret_);
  ASSERT_TRUE(key.ok()) << key.status();
  EXPECT_EQ(fcntl(key->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  fcntl(key->fd(), F_SETFD, 0);  // as a child inherits it
  for (int i = 0; i < 2; ++i) {
    const auto read = ReadKeyDescriptor(key->fd());
    ASSERT_TRUE(read.ok()) << read.status();
    EXPECT_EQ(read->ToText(), secret_.ToText());
  }
  EXPECT_EQ(fcntl(key->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
  EXPECT_LT(pwrite(key->fd(), "x", 1, 0), 0) << "it is not sealed";
}

TEST_F(KeyFileTest, ADescriptorOfSomethingElseIsRefused) {
  ASSERT_EQ(WriteKeyFile(path_, secret_, /*overwrite=*/false),
            absl::OkStatus());
  const int file = open(path_.c_str(), O_RDONLY);
  for (const int fd : {-1, 1000, file}) {
    const auto read = ReadKeyDescriptor(fd);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument) << fd;
    EXPECT_THAT(std::string(read.status().message()), HasSubstr("--key-file"));
  }
  close(file);
}

}  // namespace
}  // namespace psring
