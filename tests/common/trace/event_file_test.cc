#include "common/trace/event_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>

#include "tests/testing/captured_log.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TestDirectory;

// CRC-32C's check value is e3069283 (of "123456789"); this is it masked.
TEST(MaskedCrc32c, IsCastagnolisMasked) {
  EXPECT_EQ(MaskedCrc32c("123456789"),
            ((0xe3069283u >> 15) | (0xe3069283u << 17)) + 0xa282ead8u);
}

// The only run's only file.
std::string OnlyFile(const std::string& directory) {
  const fs::path run = fs::directory_iterator(directory)->path();
  std::stringstream text;
  text << std::ifstream(fs::directory_iterator(run)->path()).rdbuf();
  return text.str();
}

TEST(EventFile, HoldsEachNumberOfALineUnderItsName) {
  const std::string directory = TestDirectory();
  EventFile(directory, "ring")
      .WriteLine({{"event", "step"},
                  {"step", 3},
                  {"loss", 0.5},
                  {"accuracy", nullptr}});
  const std::string bytes = OnlyFile(directory);
  EXPECT_THAT(bytes, HasSubstr("brain.Event:2"));
  EXPECT_THAT(bytes, HasSubstr("step/loss"));
  EXPECT_THAT(bytes, Not(HasSubstr("accuracy")));
}

// A script's line holds null in place of it.
TEST(EventFile, AFigureThatIsNotFiniteIsAPointThatIsNotANumber) {
  const std::string directory = TestDirectory();
  EventFile(directory, "ring")
      .WriteLine({{"event", "step"},
                  {"step", 3},
                  {"loss", nullptr},
                  {"not_finite", {"loss"}}});
  tensorboard::Summary::Value point;
  point.set_tag("step/loss");
  point.set_simple_value(std::numeric_limits<float>::quiet_NaN());
  const std::string bytes = OnlyFile(directory);
  EXPECT_THAT(bytes, HasSubstr(point.SerializeAsString()));
  EXPECT_THAT(bytes, Not(HasSubstr("not_finite")));
}

// Which a metrics file has several times a second.
TEST(EventFile, ShowsNothingOfAScriptsProgress) {
  const std::string directory = TestDirectory();
  EventFile(directory, "ring")
      .WriteLine({{"event", "progress"}, {"step", 4}, {"seconds", 1.5}});
  EXPECT_THAT(OnlyFile(directory), Not(HasSubstr("progress")));
}

// A script may call a number as servers call their histogram.
TEST(EventFile, ANumberIsNoHistogramWhateverItsName) {
  const std::string directory = TestDirectory();
  EventFile(directory, "ring")
      .WriteLine({{"event", "step"}, {"staleness_histogram", 2}});
  tensorboard::Summary::Value point;
  point.set_tag("step/staleness_histogram");
  point.set_simple_value(2);
  EXPECT_THAT(OnlyFile(directory), HasSubstr(point.SerializeAsString()));
}

// As one whose path is too long, where that of its folder is not.
TEST(EventFile, AFileThatCannotBeOpenedIsAWarningThatSaysWhy) {
  std::string directory = TestDirectory();
  constexpr size_t kFolder = 4090 - sizeof("/ring-20260101-000000.000");
  while (directory.size() < kFolder) {
    const size_t left = kFolder - directory.size();
    directory += "/" + std::string(std::min<size_t>(left, 200), 'd');
  }
  CapturedLog log;
  EventFile events(directory, "ring");
  EXPECT_EQ(log.Count("(File name too long). Training continues"), 1);
}

TEST(EventFile, AFolderThatCannotBeIsAWarning) {
  CapturedLog log;
  EventFile events("/dev/null", "ring");
  events.WriteLine({{"event", "step"}, {"loss", 0.5}});
  EXPECT_EQ(log.Count("--tensorboard: cannot write /dev/null/"), 1);
  EXPECT_EQ(log.Count("(Not a directory). Training continues"), 1);
}

TEST(EventFile, ADiskThatFillsUpIsOneWarning) {
  const std::string directory = TestDirectory();
  EventFile events(directory, "ring");
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, SIG_IGN);
  const rlimit full = {60, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &full);
  CapturedLog log;
  for (int step = 0; step < 3; ++step) {
    events.WriteLine({{"event", "step"}, {"step", step}, {"loss", 0.5}});
  }
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(log.Count("(File too large). Training continues"), 1);
}

}  // namespace
}  // namespace psring
