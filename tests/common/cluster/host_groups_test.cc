#include "common/cluster/host_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace psring {
namespace {

using ::testing::ElementsAre;

// Of workers that name their host; those in capitals sum within it.
proto::Welcome JobOf(const std::vector<std::string>& hosts, int rank) {
  proto::Welcome job;
  job.set_rank(rank);
  for (const std::string& host : hosts) {
    proto::Process& worker = *job.add_workers();
    worker.set_rank(job.workers_size() - 1);
    worker.set_sums_within_host(host == "A" || host == "B");
    worker.set_host(worker.sums_within_host() ? host == "A" ? "a" : "b" : host);
  }
  return job;
}

TEST(HostGroups, TheFirstWorkerOfAHostPushesForAllOfIt) {
  const proto::Welcome job = JobOf({"A", "B", "A", "B", "A"}, 2);
  EXPECT_THAT(GradientsPushed(job), ElementsAre(3, 2, 0, 0, 0));
  EXPECT_THAT(HostGroupOf(job, 2), ElementsAre(0, 2, 4));
  EXPECT_THAT(HostGroupOf(job, 1), ElementsAre(1, 3));
  const proto::Welcome group = HostGroupJob(job);
  ASSERT_EQ(group.workers_size(), 3);
  EXPECT_EQ(group.rank(), 1);
  EXPECT_EQ(group.workers(1).rank(), 2);
}

TEST(HostGroups, WhoeverCannotSumPushesByItself) {
  const proto::Welcome job = JobOf({"a", "A", "A", "b"}, 0);
  EXPECT_THAT(GradientsPushed(job), ElementsAre(1, 2, 0, 1));
  EXPECT_THAT(HostGroupOf(job, 0), ElementsAre(0));
  EXPECT_THAT(HostGroupOf(job, 2), ElementsAre(1, 2));
  EXPECT_EQ(HostGroupJob(job).workers_size(), 1);
}

TEST(HostGroups, AWorkerAloneOnItsHostPushesItsOwn) {
  EXPECT_THAT(GradientsPushed(JobOf({"A", "B"}, 0)), ElementsAre(1, 1));
}

}  // namespace
}  // namespace psring
