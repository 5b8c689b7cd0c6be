#include "cli/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/summary.h"

namespace psring {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

ProcessMetrics Worker(int rank, double seconds) {
  ProcessMetrics worker;
  worker.role = "worker";
  worker.rank = rank;
  worker.num_parameters = 21840;
  worker.global_batch = 128;
  worker.epochs = {{1, 50, seconds / 2, 1.0, 1.1, 0.8, 100},
                   {2, 100, seconds, 0.5, 0.6, 0.9, 100}};
  worker.end = ProcessEnd{100, seconds, 1000, 1000, 5000 + rank, 0, 0};
  return worker;
}

ProcessMetrics Server(int rank, double staleness_mean, int64_t staleness_max) {
  ProcessMetrics server;
  server.role = "ps";
  server.rank = rank;
  server.end =
      ProcessEnd{0, 0, 3000, 3000, 700 + rank, staleness_mean, staleness_max};
  return server;
}

const ModeSpec kSsp = {"ps-ssp:3", "ps", "ssp", 3};

TEST(Summarize, TakesTheWorstProcessOfEachRole) {
  const auto result = Summarize(kSsp, {Server(0, 0.5, 2), Server(1, 0.25, 3),
                                       Worker(0, 4), Worker(1, 5)});
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->num_steps, 100);
  EXPECT_EQ(result->seconds, 5);
  EXPECT_EQ(result->images_per_second, 100 * 128 / 5.0);
  EXPECT_EQ(result->test_accuracy, 0.9);
  EXPECT_EQ(result->test_loss, 0.6);
  EXPECT_EQ(result->worker_bytes_per_step, 10);
  EXPECT_EQ(result->server_bytes_per_step, 30);
  EXPECT_EQ(result->worker_peak_bytes, 5001);
  EXPECT_EQ(result->server_peak_bytes, 701);
  EXPECT_EQ(result->staleness_mean, 0.5);
  EXPECT_EQ(result->staleness_max, 3);
}

TEST(Summarize, NamesWhatIsMissing) {
  const auto message = [](const std::vector<ProcessMetrics>& all) {
    return std::string(Summarize(kSsp, all).status().message());
  };
  EXPECT_THAT(message({Server(0, 0, 0)}), HasSubstr("worker 0"));
  ProcessMetrics no_epochs = Worker(0, 1);
  no_epochs.epochs.clear();
  EXPECT_THAT(message({no_epochs}), HasSubstr("epochs"));
  ProcessMetrics no_end = Worker(1, 1);
  no_end.end.reset();
  EXPECT_THAT(message({Worker(0, 1), no_end}), HasSubstr("worker 1's end"));
}

ModeResult Mode(const std::string& name, double rate, double accuracy) {
  ModeResult mode;
  mode.spec = (*ParseModes(name))[0];
  mode.images_per_second = rate;
  mode.test_accuracy = accuracy;
  mode.worker_bytes_per_step = 1024;
  mode.epochs = {{1, 10, 10000 / rate, 1, 1, accuracy - 0.05, rate},
                 {2, 20, 20000 / rate, 1, 1, accuracy, rate}};
  return mode;
}

TEST(Compare, TheTargetIsTheLowestFinalAccuracy) {
  const Comparison comparison =
      Compare({Mode("ps-bsp", 1000, 0.97), Mode("ring", 2000, 0.90)});
  EXPECT_EQ(comparison.target_accuracy, 0.90);
  EXPECT_EQ(SecondsToAccuracy(comparison.modes[0], 0.90), 10);
  EXPECT_EQ(SecondsToAccuracy(comparison.modes[1], 0.90), 10);
  EXPECT_EQ(SecondsToAccuracy(comparison.modes[1], 0.91), std::nullopt);
}

TEST(SummaryCells, HasAColumnForEachModeAndSaysWhatItLacks) {
  Comparison comparison =
      Compare({Mode("ps-bsp", 12345, 0.9714), Mode("ring", 1e6, 0.98)});
  comparison.modes[0].server_bytes_per_step = 3 << 20;
  const Cells cells = SummaryCells(comparison);
  EXPECT_THAT(cells[0], ElementsAre("", "ps-bsp", "ring"));
  EXPECT_THAT(cells[1], ElementsAre("images/s", "12,345", "1,000,000"));
  EXPECT_THAT(cells[2],
              ElementsAre("time to 97.14% accuracy", "1.6 s", "0.0 s"));
  EXPECT_THAT(cells[3], ElementsAre("test accuracy", "97.14%", "98.00%"));
  EXPECT_THAT(cells[6], ElementsAre("sent per step, a server", "3.0 MiB", "-"));
}

TEST(Verdicts, SayWhetherTheTwoSynchronousModesAgree) {
  Comparison comparison =
      Compare({Mode("ps-bsp", 1000, 0.97), Mode("ring", 2000, 0.97)});
  const auto first = [&] { return Verdicts(comparison)[0]; };
  EXPECT_THAT(first(), HasSubstr("fastest"));
  comparison.identical_weights = true;
  EXPECT_THAT(first(), HasSubstr("ended with identical weights"));
  comparison.identical_weights = false;
  EXPECT_THAT(first(), HasSubstr("DIFFERENT weights"));
}

TEST(Verdicts, NameTheFastestAndTheFirst) {
  const auto verdicts =
      Verdicts(Compare({Mode("ps-bsp", 1000, 0.97), Mode("ring", 2000, 0.97)}));
  EXPECT_THAT(verdicts[0], HasSubstr("ring was the fastest with 2,000 "
                                     "images/s, 2.00 times ps-bsp"));
  EXPECT_THAT(verdicts[1], HasSubstr("ring was the first to reach 97.00%"));
}

TEST(Verdicts, OneModeIsComparedWithNothing) {
  EXPECT_THAT(Verdicts(Compare({Mode("ps-bsp", 1000, 0.97)})), ElementsAre());
}

TEST(Format, Numbers) {
  EXPECT_EQ(FormatCount(0), "0");
  EXPECT_EQ(FormatCount(999.6), "1,000");
  EXPECT_EQ(FormatCount(1234567), "1,234,567");
  EXPECT_EQ(FormatBytes(1023), "1023 B");
  EXPECT_EQ(FormatBytes(1536), "1.5 KiB");
  EXPECT_EQ(FormatBytes(200 << 20), "200 MiB");
  EXPECT_EQ(FormatSeconds(59.94), "59.9 s");
  EXPECT_EQ(FormatSeconds(125), "2:05 min");
}

}  // namespace
}  // namespace psring
