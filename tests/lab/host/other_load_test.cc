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
  EXPECT_EQ(time->busy, 2000 * tick);
  EXPECT_EQ(time->idle, 45000 * tick);
}

TEST(ParseProcStat, OfAnotherSystemIsNothing) {
  for (const char* text : {"", "intr 1 2 3", "cpu 1 2 three"}) {
    std::istringstream stream(text);
    EXPECT_FALSE(ParseProcStat(stream).has_value()) << text;
  }
}

TEST(OtherLoad, IsNotNegative) {
  const OtherLoad others;
  for (volatile int i = 0; i < 100'000'000;) i = i + 1;
  const auto cores = others.Cores();
  ASSERT_TRUE(cores.has_value());
  EXPECT_GE(*cores, 0);
}

}  // namespace
}  // namespace psring
