#include "common/cluster/figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>

#include "absl/time/time.h"

namespace psring {
namespace {

Time At(int64_t nanos) { return Time::FromNanos(nanos); }

std::set<int64_t> StepsOf(const proto::Figures& figures) {
  std::set<int64_t> steps;
  for (const auto& record : figures.records()) steps.insert(record.step());
  return steps;
}

constexpr ClockOffset kSameClock = {};

TEST(FigureBoard, TellsWhatWasSaidAndRecordsOnceByTheCoordinatorsClock) {
  FigureBoard board;
  board.Update([](proto::Figures& all) { all.set_samples(64); });
  board.AddStep(5, At(1000), At(3000));
  EXPECT_TRUE(StepsOf(board.Take(std::nullopt)).empty());
  board.AddStep(6, At(4000), At(5000));
  const ClockOffset ahead = {absl::Nanoseconds(100), absl::ZeroDuration()};
  const proto::Figures figures = board.Take(ahead);
  EXPECT_EQ(figures.samples(), 64);
  EXPECT_GT(figures.resident_bytes(), 0);
  ASSERT_EQ(figures.records_size(), 1);
  EXPECT_EQ(figures.records(0).step(), 6);
  EXPECT_EQ(figures.records(0).arrived_ns(), 4100);
  EXPECT_EQ(figures.records(0).went_on_ns(), 5100);
  const proto::Figures again = board.Take(ahead);
  EXPECT_EQ(again.samples(), 64);
  EXPECT_EQ(again.records_size(), 0);
}

// As many models make, each of which is closed after one or two.
TEST(FigureBoard, TakesTheSameStepsAnyNumberOfTimes) {
  FigureBoard board;
  for (int i = 0; i < 100; ++i) {
    board.AddStep(0, At(i), At(i));
    board.AddStep(64, At(i), At(i));
  }
  EXPECT_THAT(StepsOf(board.Take(kSameClock)), testing::Contains(0));
}

// Two workers whose heartbeats come at other times still tell of the same.
TEST(FigureBoard, OfManyStepsItKeepsSomeTheSameOnAllWorkers) {
  FigureBoard a, b;
  std::set<int64_t> of_a, of_b;
  for (int64_t step = 0; step < 20000; ++step) {
    a.AddStep(step, At(step), At(step));
    b.AddStep(step, At(step), At(step));
    if (step % 1000 == 0) {
      const auto steps = StepsOf(a.Take(kSameClock));
      EXPECT_LE(steps.size(), 16u);
      of_a.insert(steps.begin(), steps.end());
    }
    if (step % 1000 == 700) of_b.merge(StepsOf(b.Take(kSameClock)));
  }
  std::set<int64_t> both;
  for (const int64_t step : of_a) {
    if (of_b.contains(step)) both.insert(step);
  }
  EXPECT_GE(both.size(), of_a.size() / 2);
  EXPECT_GE(both.size(), 60u);
}

TEST(FigureBoard, InSspItKeepsWhatTheKeptStepsWaitFor) {
  FigureBoard board;
  board.Update([](proto::Figures& all) { all.set_staleness_bound(3); });
  int explained = 0;
  for (int64_t step = 0; step < 20000; ++step) {
    board.AddStep(step, At(step), At(step));
    if (step % 1000 != 0) continue;
    const auto steps = StepsOf(board.Take(kSameClock));
    EXPECT_LE(steps.size(), 16u);
    for (const int64_t kept : steps) explained += steps.contains(kept - 3);
  }
  EXPECT_GE(explained, 60);
}

TEST(CleanFigures, LetsNobodySayWhatIsNoNumberOrTooMuch) {
  proto::Figures figures;
  figures.set_loss(std::nan(""));
  figures.set_accuracy(std::numeric_limits<double>::infinity());
  figures.set_compute_seconds(std::nan(""));
  figures.set_samples(-5);
  for (int i = 0; i < 1000; ++i) figures.add_records();
  std::string word(255, 'x');
  word += "\u00e9 and more";  // two bytes, across the limit
  figures.set_last_word("\x1b[2J" + word);
  const proto::Figures clean = CleanFigures(figures);
  EXPECT_TRUE(std::isnan(clean.loss()));
  EXPECT_TRUE(std::isnan(clean.accuracy()));
  EXPECT_FALSE(clean.has_test_loss());
  EXPECT_EQ(clean.compute_seconds(), 0);
  EXPECT_EQ(clean.samples(), 0);
  EXPECT_EQ(clean.records_size(), 0);
  EXPECT_EQ(clean.last_word().substr(0, 7), "\\x1b[2J");
  EXPECT_LE(clean.last_word().size(), 260u);
  EXPECT_EQ(CleanWord(word), std::string(255, 'x'));
  // Unknown fields take no room.
  proto::Figures strange;
  strange.GetReflection()->MutableUnknownFields(&strange)->AddLengthDelimited(
      1000, std::string(1 << 20, 'x'));
  EXPECT_LT(CleanFigures(strange).ByteSizeLong(), 100u);
}

}  // namespace
}  // namespace psring
