#include "lab/study/study_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/lab/study/points.h"

namespace psring {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> FlagsOf(const std::string& way,
                                 std::vector<std::string> base) {
  Job job;
  job.worker_flags = std::move(base);
  std::vector<std::string> flags = JobOf(At({{"mode", way}}), job).worker_flags;
  std::erase_if(flags, [](const std::string& flag) {
    return flag.rfind("--sync", 0) == 0 || flag.rfind("--seed", 0) == 0;
  });
  return flags;
}

TEST(JobOf, AWaysFlagReplacesThatOfAll) {
  EXPECT_THAT(FlagsOf("ring+lr=1", {"--lr=2", "--steps=9"}),
              ElementsAre("--steps=9", "--lr=1"));
  EXPECT_THAT(FlagsOf("ring+lr=1", {"--lr", "2", "--steps=9"}),
              ElementsAre("--steps=9", "--lr=1"));
  EXPECT_THAT(FlagsOf("ring+epochs=2", {"--steps=9", "--scale-lr", "--lr=1"}),
              ElementsAre("--scale-lr", "--lr=1", "--epochs=2"));
}

TEST(JobOf, AFlagWithoutAValueTakesNoOtherAlong) {
  EXPECT_THAT(FlagsOf("ring+scale-lr", {"--scale-lr", "--lr=1"}),
              ElementsAre("--lr=1", "--scale-lr"));
}

TEST(JobOf, HasAsManyProcessesAsThePoint) {
  const Job ps = JobOf(At({{"workers", "4"}, {"servers", "3"}}), Job());
  EXPECT_EQ(ps.mode, "ps");
  EXPECT_EQ(ps.workers, 4);
  EXPECT_EQ(ps.servers, 3);
  const Job ring = JobOf(At({{"mode", "ring"}, {"servers", kAny}}), Job());
  EXPECT_EQ(ring.mode, "ring");
  EXPECT_EQ(ring.workers, 2);
}

TEST(JobOf, AdamHasNotTheMomentumOfTheOthers) {
  EXPECT_THAT(FlagsOf("ring+optimizer=adam",
                      {"--optimizer=momentum", "--momentum=0.5", "--lr=1"}),
              ElementsAre("--lr=1", "--optimizer=adam"));
  EXPECT_THAT(FlagsOf("ring+momentum=0.9+optimizer=adam", {"--momentum=0.5"}),
              ElementsAre("--momentum=0.9", "--optimizer=adam"));
}

}  // namespace
}  // namespace psring
