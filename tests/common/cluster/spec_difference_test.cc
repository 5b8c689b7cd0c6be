#include "common/cluster/spec_difference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace psring {
namespace {

using ::testing::HasSubstr;

TEST(SpecDifference, NamesTheFirstFieldWithBothValues) {
  proto::JobSpec here, job;
  EXPECT_EQ(SpecDifference(here, job), std::nullopt);
  here.set_batch_size(64);
  job.set_batch_size(32);
  job.add_tensors()->set_name("w");
  EXPECT_EQ(SpecDifference(here, job), "batch_size: 64 here, 32 in the job");
  here = job;
  here.set_precision("bf16");
  EXPECT_EQ(SpecDifference(here, job),
            "precision: \"bf16\" here, \"fp32\" in the job");
}

TEST(SpecDifference, AFieldOfAnotherBuildIsADifference) {
  proto::JobSpec here, job;
  // Field 500, a number.
  ASSERT_TRUE(job.ParseFromString("\xa0\x1f\x07"));
  const auto difference = SpecDifference(here, job);
  ASSERT_TRUE(difference.has_value());
  EXPECT_THAT(*difference, HasSubstr("field number 500"));
  EXPECT_THAT(*difference, HasSubstr("same build"));
}

}  // namespace
}  // namespace psring
