#include "lab/host/other_load.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <sstream>

#include "absl/time/time.h"

namespace psring {
namespace {

TEST(ParseProcStat, AddsWhatIsBusyAndWhatIsIdle) {
  std::istringstream text(
      "cpu  1000 200 300 40000 5000 60 40 400 7 8\n"
      "cpu0 1 2 3 4 5 6 7 8 9 10\n");
  const auto time = ParseProcStat(text);
  ASSERT_TRUE(time.has_value());
  const absl::Duration tick =
      absl::Seconds(1) / static_cast<double>(sysconf(_SC_CLK_TCK));
  EXPECT_EQ(time->busy, 1900 * tick);
  EXPECT_EQ(time->interrupts, 100 * tick);
  EXPECT_EQ(time->idle, 45000 * tick);
}

TEST(ParseProcStat, OfAnotherSystemIsNothing) {
  for (const char* text : {"", "intr 1 2 3", "cpu 1 2 three"}) {
    std::istringstream stream(text);
    EXPECT_FALSE(ParseProcStat(stream).has_value()) << text;
  }
}

TEST(CoresOfOthers, AreWhatOnesOwnProgramsHaveNotTaken) {
  const absl::Duration s = absl::Seconds(1);
  EXPECT_DOUBLE_EQ(CoresOfOthers({40 * s, 1 * s, 2 * s}, 25 * s, 10 * s), 1.5);
  EXPECT_EQ(CoresOfOthers({20 * s, 20 * s, 0 * s}, 10 * s, 10 * s), 0);
  EXPECT_EQ(CoresOfOthers({20 * s, 0 * s, 1 * s}, 20.1 * s, 10 * s), 0);
}

}  // namespace
}  // namespace psring
