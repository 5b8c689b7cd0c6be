#include "common/trace/trace_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::TestDirectory;

std::string TextOf(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string EventOf(int i) {
  return absl::StrCat("{\"name\":\"", std::string(i % 300, 'x'), "\",\"i\":", i,
                      "}");
}

TEST(TraceFile, HoldsItsEventsInOrderAndNoSpacesOnceClosed) {
  const std::string path = TestDirectory() + "/a.json";
  {
    auto file = TraceFile::Create(path, 4 * TraceFile::kRegionBytes);
    ASSERT_TRUE(file.ok()) << file.status();
    for (int i = 0; i < 10000; ++i) {
      ASSERT_TRUE((*file)->Append(EventOf(i)).ok()) << i;
    }
  }
  const json events = json::parse(TextOf(path));
  ASSERT_EQ(events.size(), 10000u);
  for (int i = 0; i < 10000; ++i) EXPECT_EQ(events[i]["i"], i);
  EXPECT_LT(fs::file_size(path), 10000 * 200u);
}

TEST(TraceFile, IsValidAfterEveryFlush) {
  const std::string path = TestDirectory() + "/a.json";
  auto file = TraceFile::Create(path, 4 * TraceFile::kRegionBytes);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(json::parse(TextOf(path)).size(), 0u);
  size_t appended = 0;
  for (int i = 0; i < 20; ++i) {
    for (int j = 0; j < 250; ++j) {
      ASSERT_TRUE((*file)->Append(EventOf(i + 7 * j)).ok());
      ++appended;
    }
    ASSERT_TRUE((*file)->Flush().ok());
    EXPECT_EQ(json::parse(TextOf(path)).size(), appended);
  }
}

// A process that does nothing but write is killed in its middle.
TEST(TraceFile, IsValidAfterKill) {
  for (int round = 0; round < 10; ++round) {
    const std::string path = absl::StrCat(TestDirectory(), "/", round, ".json");
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    if (child == 0) {
      auto file = TraceFile::Create(path, 64 * TraceFile::kRegionBytes);
      for (int i = 0; file.ok(); ++i) {
        if (!(*file)->Append(EventOf(i)).ok()) break;
        if (i % 37 == 0) (*file)->Flush().IgnoreError();
        if (i == 1000 + 997 * round && write(pipe_fds[1], "", 1) != 1) break;
      }
      pause();
      _exit(0);
    }
    char byte;
    ASSERT_EQ(read(pipe_fds[0], &byte, 1), 1);
    kill(child, SIGKILL);
    ASSERT_EQ(waitpid(child, nullptr, 0), child);
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    const json events =
        json::parse(TextOf(path), nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(events.is_array()) << path;
    EXPECT_GE(events.size(), 900u);
  }
}

TEST(TraceFile, EndsBelowItsSizeWithRoomForLastWords) {
  const std::string path = TestDirectory() + "/a.json";
  int appended = 0;
  {
    auto file = TraceFile::Create(path, 2 * TraceFile::kRegionBytes);
    ASSERT_TRUE(file.ok()) << file.status();
    absl::Status status;
    while ((status = (*file)->Append(EventOf(appended))).ok()) ++appended;
    EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
    EXPECT_TRUE((*file)->Append("{\"i\":-1}", /*last_words=*/true).ok());
  }
  EXPECT_LE(fs::file_size(path), 2u * TraceFile::kRegionBytes);
  EXPECT_GT(fs::file_size(path),
            2u * TraceFile::kRegionBytes - 3 * TraceFile::kPageBytes);
  const json events = json::parse(TextOf(path));
  EXPECT_EQ(events.size(), appended + 1u);
  EXPECT_EQ(events.back()["i"], -1);
}

TEST(TraceFile, NamesAFileThatCannotBeWritten) {
  const auto file =
      TraceFile::Create("/dev/null/a.json", TraceFile::kRegionBytes);
  EXPECT_THAT(std::string(file.status().message()),
              HasSubstr("cannot write /dev/null/a.json: Not a directory"));
}

}  // namespace
}  // namespace psring
