#include "common/trace/metrics_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/testing/captured_log.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::ReadFile;
using testing::TestDirectory;

proto::Process Worker0() {
  proto::Process process;
  process.set_role(proto::WORKER);
  return process;
}

TEST(MetricsFile, ADiskThatFillsUpIsOneWarning) {
  const std::string directory = TestDirectory();
  auto metrics = MetricsFile::Create(directory, Worker0(), {});
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit full = {200, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  CapturedLog log;
  for (int step = 0; step < 100; ++step) {
    metrics->Write({{"event", "step"}, {"step", step}});
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(log.Count("worker-0.jsonl (File too large). Training continues"),
            1);
  std::ifstream file(directory + "/worker-0.jsonl");
  int lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  }
  EXPECT_GT(lines, 1);
}

TEST(MetricsFile, ADiskThatIsFullIsAnError) {
  const std::string directory = TestDirectory();
  std::filesystem::create_symlink("/dev/full", directory + "/worker-0.jsonl");
  const absl::Status status =
      MetricsFile::Create(directory, Worker0(), {}).status();
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("worker-0.jsonl (No space left on device)"));
}

// A resumed run's have the same name.
TEST(MetricsFile, EarlierRunsAreKept) {
  const std::string directory = TestDirectory();
  for (const char* run : {"first", "second", "third"}) {
    ASSERT_TRUE(MetricsFile::Create(directory, Worker0(), {{"run", run}}).ok());
  }
  const std::string path = directory + "/worker-0.jsonl";
  EXPECT_THAT(ReadFile(path), HasSubstr("third"));
  EXPECT_THAT(ReadFile(path), Not(HasSubstr("first")));
  EXPECT_THAT(ReadFile(path + ".1"), HasSubstr("first"));
  EXPECT_THAT(ReadFile(path + ".2"), HasSubstr("second"));
}

}  // namespace
}  // namespace psring
