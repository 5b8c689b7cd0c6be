#include "common/cluster/host_of.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace psring {
namespace {

proto::Welcome JobOn(
    const std::vector<std::pair<std::string, uint64_t>>& hosts) {
  proto::Welcome job;
  for (const auto& [name, boot] : hosts) {
    proto::Process& worker = *job.add_workers();
    worker.set_host(name);
    worker.set_boot(boot);
  }
  return job;
}

TEST(PlaceOnHost, CountsTheWorkersOfTheHostAlone) {
  const proto::Welcome job =
      JobOn({{"a", 1}, {"b", 2}, {"a", 1}, {"b", 2}, {"a", 1}});
  EXPECT_EQ(PlaceOnHost(job, 4).index, 2);
  EXPECT_EQ(PlaceOnHost(job, 4).count, 3);
  EXPECT_EQ(PlaceOnHost(job, 1).index, 0);
  EXPECT_EQ(PlaceOnHost(job, 3).index, 1);
}

TEST(PlaceOnHost, TellsMachinesOfOneNameApart) {
  const proto::Welcome job = JobOn({{"a", 1}, {"a", 2}, {"a", 2}});
  EXPECT_EQ(PlaceOnHost(job, 0).count, 1);
  EXPECT_EQ(PlaceOnHost(job, 1).index, 0);
  EXPECT_EQ(PlaceOnHost(job, 2).index, 1);
}

TEST(OnOneHost, TakesTheSameNameAndTheSameKernel) {
  EXPECT_TRUE(OnOneHost(JobOn({{"a", 1}, {"a", 1}})));
  EXPECT_FALSE(OnOneHost(JobOn({{"a", 1}, {"a", 2}})));
  EXPECT_FALSE(OnOneHost(JobOn({{"a", 1}, {"b", 1}})));  // two containers
}

}  // namespace
}  // namespace psring
