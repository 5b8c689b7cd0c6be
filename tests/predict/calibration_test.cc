#include "predict/calibration.h"

#include <gtest/gtest.h>

#include <vector>

#include "predict/predict_step.h"

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

TEST(CalibrateLink, DoesNotTakeAPauseForASlowLink) {
  Hardware guessed = {.link_bytes_per_s = 1e8};
  CalibrateLink({RingOfTwo(), 10'000'000, /*seconds=*/5, 0}, &guessed);
  EXPECT_DOUBLE_EQ(guessed.link_bytes_per_s, 0.8e8);
}

TEST(CalibrateCores, FindsTheCostOfBytesAndMessages) {
  // A ring of two sends each worker's bytes once, half of them a message of up
  // to 256 KiB at a time.
  const auto measured = [](int64_t bytes, int messages) {
    return MeasuredExchange{RingOfTwo(), bytes, 1,
                            2 * bytes * 1e-9 + messages * 5e-5};
  };
  Hardware hardware;
  CalibrateCores(std::vector<MeasuredExchange>{measured(400'000, 4),
                                               measured(10'000'000, 80)},
                 2, &hardware);
  EXPECT_EQ(hardware.shared_cores, 2);
  EXPECT_NEAR(hardware.cpu_s_per_byte, 1e-9, 1e-12);
  EXPECT_NEAR(hardware.cpu_s_per_message, 5e-5, 1e-7);
}

TEST(CalibrateCores, LeavesWhatCannotBeTold) {
  Hardware hardware;
  CalibrateCores(std::vector<MeasuredExchange>{{RingOfTwo(), 1'000'000, 1, 1}},
                 2, &hardware);
  EXPECT_EQ(hardware.shared_cores, 0);
}

}  // namespace
}  // namespace psring
