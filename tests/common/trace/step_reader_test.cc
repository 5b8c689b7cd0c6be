#include "common/trace/step_reader.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "tests/common/trace/trace_head.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using nlohmann::json;
using testing::ClockEvent;
using testing::ProcessEvent;
using testing::TestDirectory;
using testing::WriteFile;

constexpr int64_t kOriginNs = 5'000'000;
constexpr int64_t kMs = 1'000'000;

// Of the only worker of a job, as the first events of its file.
json HeadOfTrace() {
  return {ProcessEvent({.servers = 1, .origin_ns = kOriginNs}),
          ClockEvent(0, 1)};
}

void AddSpan(json& trace, const std::string& name, int step, int begin_ms,
             int ms) {
  trace.push_back({{"name", name},
                   {"ph", "X"},
                   {"pid", 1},
                   {"tid", 1},
                   {"ts", begin_ms * 1000.0},
                   {"dur", ms * 1000.0},
                   {"args", {{"step", step}}}});
}

WorkerSteps Read(const json& trace) {
  const std::string folder = TestDirectory();
  json server = HeadOfTrace();
  server[0]["args"]["role"] = "ps";
  WriteFile(folder + "/ps-0.trace.json", server.dump());
  WriteFile(folder + "/worker-0.trace.json", trace.dump());
  const auto job = ReadSteps(folder);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? job->workers.at(0) : WorkerSteps();
}

// What the processor sees of a step: 3 ms.
void AddStep(json& trace, int step, int begin_ms) {
  AddSpan(trace, "step", step, begin_ms, 3);
  AddSpan(trace, "data", step, begin_ms, 1);
  AddSpan(trace, "forward", step, begin_ms + 1, 1);
  AddSpan(trace, "backward", step, begin_ms + 2, 1);
  AddSpan(trace, "wait", step, begin_ms + 3, 0);
}

// For 3 s, in the wait of a step, as the coordinator's clock shows.
TEST(ReadSteps, AStoppedProcessHasNotWaitedMeanwhile) {
  json trace = HeadOfTrace();
  const int64_t stop = kOriginNs + 4 * kMs;
  trace.push_back(ClockEvent(3'000 * kMs, 1, stop));
  AddSpan(trace, "step", 1, 0, 9);
  AddSpan(trace, "wait", 1, 3, 6);
  AddSpan(trace, "step", 2, 9, 9);
  AddSpan(trace, "wait", 2, 12, 6);
  const WorkerSteps steps = Read(trace);
  EXPECT_EQ(steps.at(1).arrived, kOriginNs + 3 * kMs);
  EXPECT_EQ(steps.at(1).went_on, kOriginNs + 9 * kMs);
  EXPECT_EQ(steps.at(2).arrived, kOriginNs + 3'012 * kMs);
  EXPECT_EQ(steps.at(2).went_on, kOriginNs + 3'018 * kMs);
}

TEST(ReadSteps, TellsWhereTheTimeOfAStepWent) {
  json trace = HeadOfTrace();
  AddStep(trace, 7, 100);
  const WorkerSteps steps = Read(trace);
  ASSERT_EQ(steps.size(), 1u);
  const WorkerStep& step = steps.at(7);
  EXPECT_EQ(step.whole, 3 * kMs);
  EXPECT_EQ(step.forward, kMs);
  EXPECT_EQ(step.backward, kMs);
  EXPECT_EQ(step.arrived, kOriginNs + 103 * kMs);
}

TEST(ReadSteps, TakesTheTimesOfTheGpuThatComputes) {
  json trace = HeadOfTrace();
  AddStep(trace, 0, 100);
  AddStep(trace, 1, 105);
  AddSpan(trace, "slow", 1, 104, 2);
  AddSpan(trace, "gpu step", 0, 101, 60);
  AddSpan(trace, "gpu data", 0, 101, 5);
  AddSpan(trace, "gpu forward", 0, 106, 15);
  AddSpan(trace, "gpu backward", 0, 121, 30);
  AddSpan(trace, "gpu wait", 0, 151, 10);
  AddSpan(trace, "gpu step", 1, 161, 40);
  AddSpan(trace, "gpu wait", 1, 191, 10);
  AddStep(trace, 2, 110);  // of which the GPU has told nothing
  const WorkerSteps steps = Read(trace);
  ASSERT_EQ(steps.size(), 2u);
  const WorkerStep& step = steps.at(0);
  EXPECT_EQ(step.whole, 60 * kMs);
  EXPECT_EQ(step.data, 5 * kMs);
  EXPECT_EQ(step.forward, 15 * kMs);
  EXPECT_EQ(step.backward, 30 * kMs);
  EXPECT_EQ(step.arrived, kOriginNs + 151 * kMs);
  EXPECT_EQ(step.went_on, kOriginNs + 161 * kMs);
  EXPECT_EQ(steps.at(1).slow, 2 * kMs);
  EXPECT_EQ(steps.at(1).whole, 42 * kMs);
}

}  // namespace
}  // namespace psring
