#include "ring/collective_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A bucket a tensor.
Layout LayoutOf(const std::vector<std::string>& names, int64_t size = 16) {
  std::vector<proto::TensorShape> tensors;
  for (const std::string& name : names) {
    tensors.emplace_back();
    tensors.back().set_name(name);
    tensors.back().add_shape(size);
  }
  return *Layout::Create(tensors, 1);
}

proto::Welcome JobOf(int n) {
  proto::Welcome job;
  for (int r = 0; r < n; ++r) {
    proto::Process* process = job.add_workers();
    process->set_role(proto::WORKER);
    process->set_rank(r);
    process->set_host("h");
  }
  return job;
}

TEST(CollectivePlan, AllLaunchInTheOrderOfRankZero) {
  const Layout layout = LayoutOf({"a", "b", "c"});
  const std::vector<std::string> plans = {PlanText(layout, {2, 0, 1}, 7),
                                          PlanText(layout, {0, 1, 2}, 7)};
  EXPECT_THAT(*AgreeOnPlan(plans, 0, JobOf(2)), ElementsAre(0, 1, 2));
  EXPECT_THAT(*AgreeOnPlan(plans, 1, JobOf(2)), ElementsAre(2, 0, 1));
}

void ExpectDifference(const std::string& first, const std::string& other,
                      const std::string& in_first,
                      const std::string& in_other) {
  for (int self = 0; self < 3; ++self) {
    const auto order = AgreeOnPlan({first, first, other}, self, JobOf(3));
    EXPECT_EQ(order.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(order.status().message()),
                AllOf(HasSubstr("worker 0 (host h"), HasSubstr(in_first),
                      HasSubstr("worker 2 (host h"), HasSubstr(in_other)));
  }
}

TEST(CollectivePlan, ShowsTheFirstDifferenceAndBothRanks) {
  const Layout layout = LayoutOf({"a", "b"});
  const std::string plan = PlanText(layout, {0, 1}, 7);
  ExpectDifference(plan, PlanText(layout, {0, 1}, 8), "from number 7 on",
                   "from number 8 on");
  ExpectDifference(plan, PlanText(layout, {0}, 7), "bucket 1: 16 x float32",
                   "nothing more");
  ExpectDifference(PlanText(layout, {0}, 7), plan, "nothing more",
                   "bucket 1: 16 x float32");
  ExpectDifference(plan, PlanText(LayoutOf({"a", "b"}, 32), {0, 1}, 7),
                   "bucket 0: 16 x float32", "bucket 0: 32 x float32");
  ExpectDifference(plan, PlanText(LayoutOf({"a", "x"}), {0, 1}, 7),
                   "bucket 0: 16 x float32", "bucket 0: 16 x float32");
  ExpectDifference(plan, PlanText(LayoutOf({"x", "b"}), {0, 1}, 7),
                   "bucket 1: 16 x float32", "bucket 1: 16 x float32");
}

TEST(CollectivePlan, HasEachCollectiveOnceAndIsEverybodys) {
  const std::string twice = PlanText(LayoutOf({"a", "b"}), {0, 0}, 7);
  EXPECT_THAT(
      std::string(AgreeOnPlan({twice, twice}, 1, JobOf(2)).status().message()),
      HasSubstr("names a collective twice"));
  const std::string plan = PlanText(LayoutOf({"a", "b"}), {0, 1}, 7);
  EXPECT_THAT(std::string(AgreeOnPlan({plan}, 0, JobOf(2)).status().message()),
              HasSubstr("1 of 2 workers have said what they launch"));
}

}  // namespace
}  // namespace psring
