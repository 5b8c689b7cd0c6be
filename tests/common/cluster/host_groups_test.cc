#include "common/cluster/host_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

namespace psring {
namespace {

using ::testing::ElementsAre;

struct Worker {
  std::string host;
  std::string sum_device;
};

proto::Welcome JobOf(const std::vector<Worker>& workers, int rank) {
  proto::Welcome job;
  job.set_rank(rank);
  for (const Worker& each : workers) {
    proto::Process& worker = *job.add_workers();
    worker.set_rank(job.workers_size() - 1);
    worker.set_host(each.host);
    worker.set_sum_device(each.sum_device);
  }
  return job;
}

TEST(HostGroups, TheFirstWorkerOfAHostPushesForAllOfIt) {
  proto::Welcome job =
      JobOf({{"a", "0"}, {"b", "0"}, {"a", "1"}, {"b", "1"}, {"a", "2"}}, 2);
  job.set_job_epoch(77);
  job.set_model_id("third");
  job.mutable_spec()->set_model("m");
  EXPECT_THAT(GradientsPushed(job), ElementsAre(3, 2, 0, 0, 0));
  EXPECT_THAT(HostGroupOf(job, 2), ElementsAre(0, 2, 4));
  EXPECT_THAT(HostGroupOf(job, 1), ElementsAre(1, 3));
  const proto::Welcome group = HostGroupJob(job);
  ASSERT_EQ(group.workers_size(), 3);
  EXPECT_EQ(group.rank(), 1);
  EXPECT_EQ(group.workers(1).rank(), 2);
  EXPECT_EQ(group.job_epoch(), 77u);
  EXPECT_EQ(group.model_id(), "third");
  EXPECT_EQ(group.spec().model(), "m");
}

TEST(HostGroups, WhoeverCannotSumPushesByItself) {
  const proto::Welcome job =
      JobOf({{"a", ""}, {"a", "0"}, {"a", "1"}, {"b", ""}}, 0);
  EXPECT_THAT(GradientsPushed(job), ElementsAre(1, 2, 0, 1));
  EXPECT_THAT(HostGroupOf(job, 0), ElementsAre(0));
  EXPECT_THAT(HostGroupOf(job, 2), ElementsAre(1, 2));
  EXPECT_EQ(HostGroupJob(job).workers_size(), 1);
}

TEST(HostGroups, NobodySumsWhereTwoWorkersHaveTheSameGpu) {
  const proto::Welcome job =
      JobOf({{"a", "0"}, {"a", "1"}, {"a", "0"}, {"b", "0"}, {"b", "1"}}, 0);
  EXPECT_THAT(GradientsPushed(job), ElementsAre(1, 1, 1, 2, 0));
  EXPECT_THAT(HostGroupOf(job, 1), ElementsAre(1));
}

TEST(HostGroups, HostsOfOneNameAreToldApart) {
  proto::Welcome job = JobOf({{"a", "0"}, {"a", "0"}, {"a", "1"}}, 0);
  for (const int r : {1, 2}) job.mutable_workers(r)->set_boot(2);
  EXPECT_THAT(GradientsPushed(job), ElementsAre(1, 2, 0));
  EXPECT_THAT(HostGroupOf(job, 0), ElementsAre(0));
}

TEST(HostGroups, AWorkerAloneOnItsHostPushesItsOwn) {
  EXPECT_THAT(GradientsPushed(JobOf({{"a", "0"}, {"b", "0"}}, 0)),
              ElementsAre(1, 1));
}

}  // namespace
}  // namespace psring
