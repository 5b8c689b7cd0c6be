#include "lab/study/study_progress.h"

#include <gtest/gtest.h>

#include "tests/lab/study/points.h"

namespace psring {
namespace {

RunResult Took(double seconds) {
  RunResult run;
  run.wall_seconds = seconds;
  return run;
}

TEST(RunLine, SaysWhichRunItIsAndWhatIsLeft) {
  EXPECT_EQ(RunLine(At({{"seed", "2"}}), 0, {{}, {}}),
            "run 1 of 2: ps-bsp, 2 workers, 1 server, seed 2");
  EXPECT_EQ(RunLine(At({{"mode", "ring"}, {"servers", kAny}, {"slow", "x"}}), 2,
                    {Took(10), Took(20), {}, {}}),
            "run 3 of 4: ring, 2 workers, slow=x, seed 0, about 0:30 left");
  // The second one has failed.
  EXPECT_EQ(RunLine(At({{"seed", "2"}}), 2, {Took(10), {}, {}}),
            "run 3 of 3: ps-bsp, 2 workers, 1 server, seed 2, about 0:10 "
            "left");
}

}  // namespace
}  // namespace psring
