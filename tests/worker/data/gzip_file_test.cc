#include "worker/data/gzip_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/testing/test_directory.h"
#include "tests/worker/data/data_files.h"

namespace psring {
namespace {

using testing::Gzip;
using ::testing::HasSubstr;
using testing::TestDirectory;
using testing::WriteFile;

// Does not compress well, so that a cut falls into the data.
std::string Noise(size_t size) {
  std::string bytes;
  uint32_t state = 1;
  while (bytes.size() < size) {
    state = state * 1664525 + 1013904223;
    bytes.push_back(static_cast<char>(state >> 24));
  }
  return bytes;
}

class GzipFileTest : public ::testing::Test {
 protected:
  // Reads what was written to a file.
  absl::StatusOr<FileContents> Read(const std::string& bytes,
                                    int64_t max_bytes = kMaxFileBytes) {
    WriteFile(path_, bytes);
    return ReadPlainOrGzip(path_, max_bytes);
  }

  const std::string path_ = TestDirectory() + "/file";
};

TEST_F(GzipFileTest, ReadsPlainAndCompressedFilesAlike) {
  for (size_t size : {0, 1, 5, 1 << 20, (5 << 20) + 3}) {
    const std::string bytes = Noise(size);
    EXPECT_EQ(Read(bytes)->bytes, bytes);
    EXPECT_EQ(Read(Gzip(bytes))->bytes, bytes);
  }
}

// As `cat a.gz b.gz` makes it.
TEST_F(GzipFileTest, ReadsAllMembers) {
  const std::string first = Noise(3 << 20), second = Noise(1000);
  EXPECT_EQ(Read(Gzip(first) + Gzip("") + Gzip(second))->bytes, first + second);
  EXPECT_EQ(Read(Gzip(first) + "what is this?").status().code(),
            absl::StatusCode::kDataLoss);
}

TEST_F(GzipFileTest, ReportsACompressedFileThatIsCutShort) {
  const std::string whole = Gzip(Noise(3 << 20));
  for (size_t size : {size_t{2}, size_t{12}, whole.size() / 2, whole.size() - 8,
                      whole.size() - 1}) {
    const auto read = Read(whole.substr(0, size));
    EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << size;
    EXPECT_THAT(read.status().message(), HasSubstr(path_));
    EXPECT_THAT(read.status().message(), HasSubstr("cut short"));
  }
}

TEST_F(GzipFileTest, ReportsADamagedByte) {
  std::string bytes = Gzip(Noise(100000));
  bytes[bytes.size() / 2] ^= 1;
  const auto read = Read(bytes);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(read.status().message(), HasSubstr(path_));
  EXPECT_THAT(read.status().message(), HasSubstr("damaged"));
}

TEST_F(GzipFileTest, StopsAtAFileThatHoldsOrUnpacksToTooMuch) {
  const std::string zeros(50 << 20, '\0');
  for (const std::string& bytes : {zeros, Gzip(zeros)}) {
    const auto read = Read(bytes, 1 << 20);
    EXPECT_EQ(read.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(read.status().message(), HasSubstr(path_));
  }
}

TEST_F(GzipFileTest, ReportsAFolder) {
  mkdir(path_.c_str(), 0700);
  const auto read = ReadPlainOrGzip(path_);
  EXPECT_EQ(read.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(read.status().message(), HasSubstr(path_));
}

TEST_F(GzipFileTest, TakesTheFirstFileThatExists) {
  WriteFile(path_, "found");
  const auto read = ReadFirstOf({path_ + ".absent", path_, path_ + ".later"});
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->path, path_);
  EXPECT_EQ(read->bytes, "found");
}

TEST_F(GzipFileTest, ListsWhatItTriedWhereNoneExists) {
  const auto read = ReadFirstOf({path_, path_ + ".gz"});
  EXPECT_EQ(read.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(read.status().message(),
              HasSubstr("tried " + path_ + " and " + path_ + ".gz"));
}

}  // namespace
}  // namespace psring
