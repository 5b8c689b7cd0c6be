// A small study with real processes: killed in its middle, it goes on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/testing/process.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::SizeIs;

TEST(Study, OfFourModesAndThreeSeedsGoesOnAfterKill9) {
  const std::string out =
      std::filesystem::absolute(testing::TempDir()).string() + "/study";
  std::filesystem::remove_all(out);
  const std::vector<std::string> argv = {
      PsringBinary(),    "compare",
      "--seeds=3",       "--epochs=1",
      "--batch-size=32", "--data=digits:train=256,test=100",
      "--out=" + out,    "--",
      "--bucket-mb=0.05"};
  {
    auto first = Process::Start(argv);
    ASSERT_TRUE(first.ok()) << first.status();
    ASSERT_TRUE(first->WaitForOutput("run 6 of 12", Soon())) << first->Output();
    first->Signal(SIGKILL);
    EXPECT_EQ(first->Wait(Soon()), 128 + SIGKILL);
  }
  const Ran second = RunProcess(argv, Now() + absl::Minutes(3));
  ASSERT_EQ(second.code, 0) << second.output;
  // The sixth may have ended before it was killed.
  int kept = 12;
  while (kept > 0 &&
         !absl::StrContains(second.output,
                            absl::StrCat(kept, " of 12 runs are in ", out))) {
    --kept;
  }
  EXPECT_GE(kept, 5) << second.output;
  EXPECT_LT(kept, 12) << second.output;
  EXPECT_THAT(second.output,
              Not(HasSubstr(absl::StrCat("run ", kept, " of 12"))));
  for (int run = kept + 1; run <= 12; ++run) {
    EXPECT_THAT(second.output, HasSubstr(absl::StrCat("run ", run, " of 12")));
  }
  std::ifstream file(out + "/report.json");
  const json report = json::parse(file);
  ASSERT_THAT(report["runs"], SizeIs(12));
  for (const json& run : report["runs"]) EXPECT_THAT(run["epochs"], SizeIs(1));
  EXPECT_EQ(report["identical_weights"], true);
}

}  // namespace
}  // namespace psring
