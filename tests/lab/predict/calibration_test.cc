#include "lab/predict/calibration.h"

#include <gtest/gtest.h>

#include <vector>

#include "lab/predict/predict_step.h"

namespace psring {
namespace {

Topology RingOfTwo() { return {TopologyKind::kRing, 2}; }

TEST(CalibrateLink, FindsTheRateThatExplainsTheTime) {
  const Hardware real = {.link_bytes_per_s = 0.92e8};
  const Workload workload = ExchangeWorkload(TopologyKind::kRing, 10'000'000);
  const double seconds = PredictStep(real, workload, RingOfTwo()).step_s;
  Hardware guessed = {.link_bytes_per_s = 1e8};
  CalibrateLink({RingOfTwo(), 10'000'000, seconds, 0}, &guessed);
  EXPECT_NEAR(guessed.link_bytes_per_s, 0.92e8, 0.001e8);
}

TEST(ExchangeWorkload, OfARingIsNotAppliedToParameters) {
  const Hardware slow = {.update_bytes_per_s = 1e6};
  const auto seconds = [&](bool updates) {
    Workload workload = ExchangeWorkload(TopologyKind::kRing, 1'000'000);
    workload.updates |= updates;
    return PredictStep(slow, workload, RingOfTwo()).step_s;
  };
  // Each of the two would apply one half.
  EXPECT_NEAR(seconds(true) - seconds(false), 0.5, 1e-3);
}

TEST(CalibrateLink, DoesNotTakeAPauseForASlowLink) {
  Hardware guessed = {.link_bytes_per_s = 1e8};
  CalibrateLink({RingOfTwo(), 10'000'000, /*seconds=*/5, 0}, &guessed);
  EXPECT_DOUBLE_EQ(guessed.link_bytes_per_s, 0.8e8);
}

TEST(CalibrateLink, DoesNotTakeALinkForMuchFasterThanItWasMeasured) {
  Hardware guessed = {.link_bytes_per_s = 1e8};
  CalibrateLink({RingOfTwo(), 10'000'000, /*seconds=*/0.01, 0}, &guessed);
  EXPECT_DOUBLE_EQ(guessed.link_bytes_per_s, 1.05e8);
}

// Of two hosts with a server each, a half of all bytes stays on its host.
TEST(CalibrateCores, CountsWhatGoesBetweenHostsInLargeExchanges) {
  Hardware hardware;
  CalibrateCores(
      std::vector<MeasuredExchange>{
          {{TopologyKind::kPs, 2, 0, true}, 1'000'000, 1, 2e6 * 3e-9},
          {RingOfTwo(), 999'999, 1, 1},
          {RingOfTwo(), 100, 1, 1}},
      2, &hardware);
  EXPECT_NEAR(hardware.cpu_s_per_byte, 3e-9, 1e-15);
}

TEST(CalibrateCores, TakesTheMedianCostOfAByte) {
  // Of a ring of two all bytes of both go to the other; of two workers and
  // servers of their own all of both go there and back.
  Hardware hardware;
  CalibrateCores(
      std::vector<MeasuredExchange>{
          {RingOfTwo(), 1'000'000, 1, 2e6 * 1e-9},
          {RingOfTwo(), 1'000'000, 1, 2e6 * 9e-9},
          {{TopologyKind::kPs, 2, 4}, 1'000'000, 1, 4e6 * 2e-9}},
      2, &hardware);
  EXPECT_EQ(hardware.shared_cores, 2);
  EXPECT_NEAR(hardware.cpu_s_per_byte, 2e-9, 1e-15);
}

TEST(CalibrateMessages, FindsTheCostsThatExplainTheTimes) {
  Hardware ring = {.latency_s = 120e-6, .shared_cores = 2};
  ring.cpu_s_per_message = 40e-6;
  Hardware ps = ring;
  ps.latency_s = 170e-6;
  std::vector<MeasuredExchange> measured;
  for (const int64_t bytes : {1'000, 16'000, 64'000}) {
    measured.push_back({RingOfTwo(), bytes, 0, 0});
    measured.push_back({{TopologyKind::kPs, 2, 1}, bytes, 0, 0});
    measured.push_back({{TopologyKind::kPs, 2, 4}, bytes, 0, 0});
  }
  for (MeasuredExchange& exchange : measured) {
    const bool is_ring = exchange.topology.kind == TopologyKind::kRing;
    exchange.seconds = PredictExchange(is_ring ? ring : ps, exchange);
  }
  Hardware guessed_ring, guessed_ps;
  CalibrateMessages(measured, 2, &guessed_ring, &guessed_ps);
  EXPECT_NEAR(guessed_ring.cpu_s_per_message, 40e-6, 2e-6);
  EXPECT_EQ(guessed_ps.cpu_s_per_message, guessed_ring.cpu_s_per_message);
  EXPECT_NEAR(guessed_ring.latency_s, 120e-6, 5e-6);
  EXPECT_NEAR(guessed_ps.latency_s, 170e-6, 5e-6);
  EXPECT_EQ(guessed_ps.shared_cores, 2);
}

TEST(CalibrateMessages, LeavesTheLatencyOfAKindThatWasNotMeasured) {
  const Hardware real = {.latency_s = 170e-6};
  MeasuredExchange exchange = {RingOfTwo(), 1'000, 0, 0};
  exchange.seconds = PredictExchange(real, exchange);
  Hardware ring, ps;
  CalibrateMessages({exchange}, 2, &ring, &ps);
  EXPECT_NEAR(PredictExchange(ring, exchange), exchange.seconds, 5e-6);
  EXPECT_EQ(ps.latency_s, Hardware{}.latency_s);
}

TEST(CalibrateCores, LeavesWhatCannotBeTold) {
  Hardware hardware;
  CalibrateCores(std::vector<MeasuredExchange>{{RingOfTwo(), 1'000'000, 1, 0}},
                 2, &hardware);
  EXPECT_EQ(hardware.shared_cores, 0);
}

}  // namespace
}  // namespace psring
