#include "lab/study/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(ProgressBar, ShowsEpochLossRateAndTimeLeft) {
  EXPECT_EQ(ProgressBar("ring", HalfWay()),
            "ring       [######......] epoch 2/4  loss 0.5000  1,234 "
            "images/s  ETA 0:30");
}

TEST(ProgressBar, FitsAnOrdinaryTerminal) {
  ProcessMetrics worker = HalfWay();
  worker.total_steps = 1000;
  worker.steps[0] = {999, 1000, 12.3456, 123456};
  EXPECT_LT(ProgressBar("ps-ssp:3", worker).size(), 80u);
}

TEST(ProgressBar, WaitsForTheFirstStep) {
  EXPECT_EQ(ProgressBar("ring", {}), "ring       starting");
}

TEST(ProgressBar, AtTheEndItIsFull) {
  ProcessMetrics worker = HalfWay();
  worker.steps.push_back({200, 60, 0.1, 1234});
  EXPECT_THAT(ProgressBar("ring", worker),
              HasSubstr("[############] epoch 4/4"));
  EXPECT_THAT(ProgressBar("ring", worker), HasSubstr("ETA 0:00"));
}

TEST(Progress, OffATerminalEveryEpochGetsOneLine) {
  const std::string printed = Printed(0, [](Progress& progress) {
    progress.Show(HalfWay());
    progress.Show(HalfWay());
    progress.Finish();
  });
  EXPECT_EQ(printed,
            "ring       epoch 1/4: train loss 0.9000, test loss 0.8000, "
            "accuracy 75.00%, 1,200 images/s\n"
            "ring       epoch 2/4: train loss 0.5000, test loss 0.4000, "
            "accuracy 87.50%, 1,234 images/s\n");
}

TEST(Progress, OnATerminalOneLineIsRedrawnWhenSomethingIsNew) {
  const std::string printed = Printed(100, [](Progress& progress) {
    progress.Show(HalfWay());
    progress.Show(HalfWay());
    progress.Finish();
  });
  EXPECT_EQ(std::count(printed.begin(), printed.end(), '\r'), 1);
  EXPECT_THAT(printed, StartsWith("\rring"));
  EXPECT_EQ(printed.back(), '\n');
}

TEST(Progress, TheLineFitsTheTerminal) {
  const std::string printed =
      Printed(20, [](Progress& progress) { progress.Show(HalfWay()); });
  EXPECT_EQ(printed, "\rring       [######.\033[K");
}

}  // namespace
}  // namespace psring
