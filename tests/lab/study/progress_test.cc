#include "lab/study/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <string>

namespace psring {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

ProcessMetrics HalfWay() {
  ProcessMetrics worker;
  worker.total_steps = 200;
  worker.steps_per_epoch = 50;
  worker.steps = {{100, 30.0, 0.5, 1234}};
  worker.epochs = {{1, 50, 15, 0.9, 0.8, 0.75, 1200},
                   {2, 100, 30, 0.5, 0.4, 0.875, 1234}};
  return worker;
}

// What `show` prints.
template <typename Show>
std::string Printed(int columns, const Show& show) {
  char* text = nullptr;
  size_t size = 0;
  FILE* out = open_memstream(&text, &size);
  Progress progress(out, columns, "ring");
  show(progress);
  fclose(out);
  std::string printed(text, size);
  free(text);
  return printed;
}

TEST(ProgressLine, ShowsEpochLossRateAndTimeLeft) {
  EXPECT_EQ(ProgressLine("ring", HalfWay()),
            "ring       [######......] epoch 2/4  loss 0.5000  1,234 "
            "images/s  ETA 0:30");
}

TEST(ProgressLine, CountsAnEpochThatEndsEarly) {
  ProcessMetrics worker = HalfWay();
  worker.total_steps = 210;
  worker.steps.push_back({201, 60, 0.1, 1234});
  EXPECT_THAT(ProgressLine("ring", worker), HasSubstr("epoch 5/5"));
}

TEST(ProgressLine, FitsAnOrdinaryTerminal) {
  ProcessMetrics worker = HalfWay();
  worker.total_steps = 1000;
  worker.steps[0] = {999, 1000, 12.3456, 123456};
  EXPECT_LT(ProgressLine("ps-ssp:3", worker).size(), 80u);
}

TEST(ProgressLine, WaitsForTheFirstStep) {
  EXPECT_EQ(ProgressLine("ring", {}), "ring       starting");
}

TEST(ProgressLine, AtTheEndItIsFull) {
  ProcessMetrics worker = HalfWay();
  worker.steps.push_back({200, 60, 0.1, 1234});
  EXPECT_THAT(ProgressLine("ring", worker),
              HasSubstr("[############] epoch 4/4"));
  EXPECT_THAT(ProgressLine("ring", worker), HasSubstr("ETA 0:00"));
}

// Of a script that has diverged.
TEST(EpochLine, SaysThatNoFigureIsFinite) {
  ProcessMetrics script;
  const double nan = std::nan("");
  EXPECT_EQ(EpochLine("ring", script, {3, 30, 9.0, nan, nan, nan, nan}),
            "ring       epoch 3: no figure that is finite");
  EXPECT_EQ(EpochLine("ring", script, {3, 30, 9.0, nan, 0.5, nan, nan}),
            "ring       epoch 3: test loss 0.5000");
}

TEST(Progress, OffATerminalEveryEpochGetsOneLine) {
  const std::string printed = Printed(0, [](Progress& progress) {
    progress.Show(HalfWay());
    progress.Show(HalfWay());
  });
  EXPECT_EQ(printed,
            "ring       epoch 1/4: train loss 0.9000, test loss 0.8000, "
            "accuracy 75.00%, 1,200 images/s\n"
            "ring       epoch 2/4: train loss 0.5000, test loss 0.4000, "
            "accuracy 87.50%, 1,234 images/s\n");
}

TEST(Progress, SaysOnlyWhatAScriptTells) {
  ProcessMetrics script;
  const double unknown = std::nan("");
  script.epochs = {{3, 30, 1.5, unknown, 0.25, 0.75, unknown}};
  const char kLine[] = "ring       epoch 3: test loss 0.2500, accuracy 75.00%";
  EXPECT_EQ(ProgressLine("ring", script), kLine);
  EXPECT_EQ(Printed(0, [&](Progress& p) { p.Show(script); }),
            std::string(kLine) + "\n");
}

TEST(Progress, OnATerminalABlockIsDrawnAnewWhenSomethingIsNew) {
  const std::string printed = Printed(100, [](Progress& progress) {
    progress.Show(HalfWay());
    progress.Show(HalfWay());
    progress.Show(HalfWay(), {"the slowest: worker 1"});
  });
  const std::string line = ProgressLine("ring", HalfWay()) + "\n";
  EXPECT_EQ(printed,
            line + "\033[1A\r\033[J" + line + "the slowest: worker 1\n");
}

}  // namespace
}  // namespace psring
