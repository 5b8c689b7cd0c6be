#include "ring/nccl/nccl_verdict.h"

#include <gtest/gtest.h>

#include "common/clock.h"

namespace psring {
namespace {

constexpr absl::Duration kGrace = absl::Seconds(6);

Time At(int seconds) { return Time() + absl::Seconds(1000 + seconds); }

// An allreduce that may take 10 s and began at 0.
NcclView Allreduce() {
  NcclView view;
  view.collective = "allreduce of bucket 3, step 812";
  view.collective_since = At(0);
  view.timeout = absl::Seconds(10);
  return view;
}

TEST(JudgeNccl, IsContentWithoutWorkAndWithWorkInTime) {
  EXPECT_TRUE(JudgeNccl(At(0), {}, kGrace).ok());
  EXPECT_TRUE(JudgeNccl(At(9), Allreduce(), kGrace).ok());
}

TEST(JudgeNccl, NamesALateCollective) {
  const absl::Status why = JudgeNccl(At(10), Allreduce(), kGrace);
  EXPECT_EQ(why.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(why.message(),
            "allreduce of bucket 3, step 812: not complete after 10s");
}

TEST(JudgeNccl, JoinsARankThatHasFoundItLate) {
  NcclView view = Allreduce();
  view.late_elsewhere = true;
  const absl::Status why = JudgeNccl(At(4), view, kGrace);
  EXPECT_EQ(why.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(why.message(),
            "allreduce of bucket 3, step 812: not complete after 4s, and "
            "another rank has waited too long");
  view.collective_since = Time::InfiniteFuture();  // its own part is to come
  EXPECT_TRUE(JudgeNccl(At(4), view, kGrace).ok());
}

TEST(JudgeNccl, NamesADriverThatDoesNotAnswer) {
  NcclView view = Allreduce();
  view.collective_since = Time::InfiniteFuture();
  view.asked_since = At(2);
  view.driver_timeout = absl::Seconds(7);
  EXPECT_TRUE(JudgeNccl(At(8), view, kGrace).ok());
  EXPECT_EQ(JudgeNccl(At(9), view, kGrace).message(),
            "allreduce of bucket 3, step 812: the GPU's driver has not "
            "answered for 7s");
}

TEST(JudgeNccl, DoesNotCountTheTimeBeforeThisRanksPartCouldBegin) {
  NcclView view = Allreduce();
  view.collective_since = Time::InfiniteFuture();
  EXPECT_TRUE(JudgeNccl(At(1000), view, kGrace).ok());
}

TEST(JudgeNccl, ACancelledProcessNamesItsCulpritAndTheCollective) {
  NcclView view = Allreduce();
  view.cancelled = absl::UnavailableError("lost worker 1 (host b, pid 4711)");
  view.error = "NCCL: remote process exited";
  view.error_since = At(0);
  EXPECT_EQ(JudgeNccl(At(20), view, kGrace).message(),
            "allreduce of bucket 3, step 812: lost worker 1 (host b, pid "
            "4711)");
  view.collective.clear();
  EXPECT_EQ(JudgeNccl(At(20), view, kGrace).message(),
            "lost worker 1 (host b, pid 4711)");
}

TEST(JudgeNccl, GivesTheControlPlaneTimeToNameWhomNcclMisses) {
  NcclView view = Allreduce();
  view.error = "NCCL: remote process exited";
  view.error_since = At(1);
  EXPECT_TRUE(JudgeNccl(At(6), view, kGrace).ok());
  const absl::Status why = JudgeNccl(At(7), view, kGrace);
  EXPECT_EQ(why.code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(why.message(),
            "allreduce of bucket 3, step 812: NCCL: remote process exited");
}

// Whatever its code: only a late collective asks for the culprit.
TEST(JudgeNccl, AbortsAtOnceWhenTheStreamIsBroken) {
  NcclView view = Allreduce();
  view.stream = absl::DeadlineExceededError("illegal address");
  EXPECT_EQ(
      JudgeNccl(At(0), view, kGrace),
      absl::InternalError("allreduce of bucket 3, step 812: illegal address"));
}

}  // namespace
}  // namespace psring
