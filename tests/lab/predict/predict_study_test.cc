#include "lab/predict/predict_study.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace psring {
namespace {

// On 4 hosts with a worker.
Prediction Ps(int server_hosts, bool colocated, double step_s) {
  Prediction prediction;
  prediction.topology = {TopologyKind::kPs, 4, server_hosts, colocated};
  prediction.step_s = step_s;
  return prediction;
}

Prediction Ring(double step_s) {
  Prediction prediction;
  prediction.topology = {TopologyKind::kRing, 4};
  prediction.step_s = step_s;
  return prediction;
}

TEST(BestOf, PrefersFewerHostsAndOfAsManyTheFaster) {
  EXPECT_EQ(BestOf({Ring(1.010), Ps(2, false, 1.0)}), 0u);
  EXPECT_EQ(BestOf({Ring(1.030), Ps(2, false, 1.0)}), 1u);
  EXPECT_EQ(BestOf({Ring(1.015), Ps(2, false, 1.0), Ps(0, true, 1.005)}), 2u);
  EXPECT_EQ(BestOf({Ring(1.0), Ps(0, true, 1.0)}), 0u);
}

// Its kind by itself would show the one server, which is within 2% of the two.
TEST(PredictCells, HaveTheBestOfAllWhichTheVerdictNames) {
  PredictStudy study;
  study.workload.compute_s = {{0.5}};
  ScalePredictions scale;
  scale.hosts = 4;
  scale.all = {Ring(2.0), Ps(1, false, 1.025), Ps(2, false, 1.01),
               Ps(0, true, 2.0), Ps(3, true, 1.0)};
  scale.best = BestOf(scale.all);
  ASSERT_EQ(scale.best, 2u);
  study.scales = {scale};
  std::vector<std::string> marked;
  for (const std::vector<std::string>& row : PredictCells(study)) {
    if (row.back() == "best") marked.push_back(row[1]);
  }
  EXPECT_EQ(marked, std::vector<std::string>{"ps, 2 servers"});
  EXPECT_NE(PredictVerdicts(study)[0].find("ps, 2 servers"), std::string::npos);
}

TEST(PredictVerdicts, TellOfAFasterOneOfMoreHostsAndOfTheRing) {
  PredictStudy study;
  const auto verdict = [&](std::vector<Prediction> all) {
    study.scales = {{.hosts = 4, .all = all, .best = BestOf(all)}};
    return PredictVerdicts(study)[0];
  };
  const std::string faster =
      "(the fastest is within 2% of it, with more hosts)";
  const std::string ring = "; the ring takes 2.00 times as long.";
  const std::string one = verdict({Ring(2.0), Ps(1, false, 1.0)});
  EXPECT_EQ(one.find(faster), std::string::npos) << one;
  EXPECT_NE(one.find(ring), std::string::npos) << one;
  const std::string two =
      verdict({Ring(2.0), Ps(1, false, 1.0), Ps(2, false, 0.99)});
  EXPECT_NE(two.find(faster + ring), std::string::npos) << two;
  const std::string none = verdict({Ring(1.0), Ps(1, false, 1.0)});
  EXPECT_EQ(none.find("the ring takes"), std::string::npos) << none;
}

TEST(PredictScale, EndsOnceItIsCancelled) {
  Cancellation cancellation;
  cancellation.Cancel(absl::CancelledError("enough"));
  Workload workload;
  workload.buckets = {1000000};
  workload.compute_s = {{0.1, 0.2}};
  const auto scale = PredictScale({}, workload, 64, {}, {}, cancellation);
  EXPECT_EQ(scale.status(), cancellation.status());
}

}  // namespace
}  // namespace psring
