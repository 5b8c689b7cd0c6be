// A script's model on the host, through real jobs.
#include "python/capi/script_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "nlohmann/json.hpp"
#include "tests/testing/local_job.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using ::testing::Each;
using ::testing::FloatEq;
using ::testing::FloatNear;
using ::testing::HasSubstr;

constexpr int kWorkers = 2;
constexpr int kElements = 100;

using Slots = std::vector<std::vector<float>>;

class ScriptModelTest : public ::testing::TestWithParam<proto::Mode> {
 protected:
  static LocalJobOptions Job() {
    LocalJobOptions options;
    options.spec = SmallSpec(GetParam(), proto::BSP);
    options.num_workers = kWorkers;
    options.num_servers = GetParam() == proto::RING ? 0 : 2;
    return options;
  }

  static absl::StatusOr<std::unique_ptr<ScriptModel>> Open(
      const LocalWorker& worker, const nlohmann::json& model) {
    const auto parsed = ParseModelOptions(model.dump(), GetParam());
    if (!parsed.ok()) return parsed.status();
    return ScriptModel::Open(*worker.job, *parsed, SameHost::kAuto,
                             /*step_timeout=*/Soon() - Now());
  }
};

// Of a step with the gradient 2: Adam's means are (1 - beta1) * 2 and
// (1 - beta2) * 4.
TEST_P(ScriptModelTest, Rank0FetchesTheOptimizersState) {
  const nlohmann::json text = {
      {"id", "script"},
      {"tensors", {{{"name", "t"}, {"shape", {kElements}}}}},
      {"update", "fused"},
      {"groups", {{{"name", "adam"}, {"lr", 0.05}, {"weight_decay", 0.0}}}},
      {"tensor_groups", {0}}};
  Slots fetched[kWorkers];
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    const auto model = Open(worker, text);
    if (!model.ok()) return model.status();
    ScriptModel& m = **model;
    absl::Status status = m.Begin(*m.CopySlots({}));
    if (!status.ok()) return status;
    std::fill_n(m.gradients(), kElements, 2.0f);
    if (absl::Status s = m.Submit(0); !s.ok()) return s;
    if (absl::Status s = m.Finish(); !s.ok()) return s;
    Slots& slots = fetched[worker.rank];
    const int64_t flat = m.Describe()["num_elements"];
    slots = Slots(2, std::vector<float>(flat));
    const std::vector<float*> into = {slots[0].data(), slots[1].data()};
    EXPECT_EQ(m.CheckFetch({into.data(), 1}).ok(), worker.rank > 0);
    if (absl::Status s = m.CheckFetch(into); !s.ok()) return s;
    if (absl::Status s = m.FetchSlots(into); !s.ok()) return s;
    for (std::vector<float>& slot : slots) slot.resize(kElements);
    return m.Close();
  };
  for (const absl::Status& s : RunLocalJob(Job(), body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  EXPECT_THAT(fetched[0][0], Each(FloatEq(0.2f)));
  EXPECT_THAT(fetched[0][1], Each(FloatNear(0.004f, 1e-8f)));
  EXPECT_THAT(fetched[1][0], Each(0.0f));  // rank 0's alone
}

TEST_P(ScriptModelTest, AStepTakesEachBucketOnce) {
  const nlohmann::json text = {{"id", "script"},
                               {"tensors",
                                {{{"name", "t"}, {"shape", {kElements}}},
                                 {{"name", "u"}, {"shape", {kElements}}}}},
                               {"bucket_mb", 1e-4},
                               {"update", "fused"},
                               {"groups", {{{"name", "sgd"}, {"lr", 0.5}}}},
                               {"tensor_groups", {0, 0}}};
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    const auto model = Open(worker, text);
    if (!model.ok()) return model.status();
    ScriptModel& m = **model;
    EXPECT_EQ(m.Describe()["num_buckets"], 2);
    if (absl::Status s = m.Begin(*m.CopySlots({})); !s.ok()) return s;
    const float before = m.parameters()[0];
    const int64_t flat = m.Describe()["num_elements"];
    std::fill_n(m.gradients(), flat, 2.0f);
    for (int step = 0; step < 2; ++step) {
      if (absl::Status s = m.Submit(1); !s.ok()) return s;
      EXPECT_THAT(std::string(m.Submit(1).message()),
                  HasSubstr("bucket 1 of 'script' goes twice"));
      EXPECT_THAT(std::string(m.Finish().message()),
                  HasSubstr("lacks bucket 0"));
      if (absl::Status s = m.Submit(0); !s.ok()) return s;
      if (absl::Status s = m.Finish(); !s.ok()) return s;
      EXPECT_EQ(m.updates(), step + 1);
    }
    EXPECT_EQ(m.parameters()[0], before - 2);
    return m.Close();
  };
  for (const absl::Status& s : RunLocalJob(Job(), body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, ScriptModelTest,
                         ::testing::Values(proto::RING,
                                           proto::PARAMETER_SERVER),
                         [](const auto& info) {
                           return info.param == proto::RING ? "ring" : "ps";
                         });

}  // namespace
}  // namespace psring
