#include "lab/page/job_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/time/time.h"
#include "common/clock.h"
#include "protos/cluster.pb.h"

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

const Time kStart = Time::FromNanos(3600000000000);

// Two workers of a ring after so many steps.
proto::JobView View(int64_t step, int64_t total) {
  proto::JobView view;
  view.set_state(proto::JobView::RUNNING);
  view.set_mode(proto::RING);
  view.set_num_workers(2);
  for (int rank = 0; rank < 2; ++rank) {
    proto::ProcessView& process = *view.add_processes();
    process.mutable_process()->set_role(proto::WORKER);
    process.mutable_process()->set_rank(rank);
    process.set_step(step);
    process.mutable_figures()->set_steps(step);
    process.mutable_figures()->set_samples(step * 32);
    process.mutable_figures()->set_total_steps(total);
    process.mutable_figures()->set_loss(0.5);
  }
  return view;
}

JobState After(int64_t step, int64_t total) {
  JobState state;
  for (int second = 0; second <= 10; ++second) {
    state.Take(kStart + absl::Seconds(second),
               View(step - 10 * (10 - second), total));
  }
  return state;
}

TEST(JobBlock, ShowsHowFarAJobIsAndHowLongItTakes) {
  EXPECT_THAT(JobBlock(After(1200, 2400)),
              ElementsAre("[######......] step 1,200 of 2,400  loss 0.5000  "
                          "2:00 left  640 samples/s",
                          "ring, 2 workers"));
}

TEST(JobBlock, HasNoBarWhereTheLengthIsUnknown) {
  EXPECT_THAT(
      JobBlock(After(1200, 0)),
      ElementsAre("step 1,200  loss 0.5000  640 samples/s", "ring, 2 workers"));
}

TEST(JobBlock, SaysWhoIsMissing) {
  proto::JobView view = View(0, 0);
  view.set_state(proto::JobView::FORMING);
  view.set_mode(proto::PARAMETER_SERVER);
  view.set_num_servers(1);
  JobState state;
  state.Take(kStart, view);
  EXPECT_THAT(JobBlock(state),
              ElementsAre("ps, 2 workers, 1 server: waits for processes to "
                          "join, 2 of 3 have"));
  EXPECT_THAT(JobLine(state), IsEmpty());
}

TEST(JobBlock, EndsWithTheJob) {
  proto::JobView view = View(5, 5);
  view.set_state(proto::JobView::OVER);
  JobState state;
  state.Take(kStart, view);
  EXPECT_THAT(JobBlock(state), IsEmpty());
}

TEST(JobLine, TellsTheSameInOneLine) {
  EXPECT_THAT(JobLine(After(1200, 2400)),
              ElementsAre("step 1,200 of 2,400, loss 0.5000, 2:00 left, "
                          "640 samples/s"));
}

}  // namespace
}  // namespace psring
