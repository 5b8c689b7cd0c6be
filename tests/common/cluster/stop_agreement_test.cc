#include "common/cluster/stop_agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/testing/local_job.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(StopAgreement, NamesTheWorkerWhoseStepIsNoNumber) {
  LocalJobOptions job;
  job.spec = SmallSpec(proto::RING, proto::BSP);
  job.num_workers = 2;
  RunLocalJob(job, [](LocalWorker& worker) {
    if (worker.rank == 1) {
      return worker.member->Gather(kStopWish, "evil\x1b", Soon()).status();
    }
    StopAgreement stop(*worker.member, /*step=*/0, /*period=*/1);
    stop.Wish();
    absl::StatusOr<bool> stops = false;
    for (int64_t step = 1; stops.ok() && !*stops; ++step) {
      stops = stop.StopsAfter(step, Soon());
    }
    EXPECT_THAT(
        std::string(stops.status().message()),
        AllOf(HasSubstr("worker 1 (host "),
              HasSubstr("stops after step 'evil\\x1b', which is no number")));
    return stops.status();
  });
}

}  // namespace
}  // namespace psring
