#include "lab/predict/predict_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/cancellation.h"
#include "lab/predict/closed_forms.h"

namespace psring {
namespace {

using testing::ElementsAre;

constexpr int64_t kMiB = (1 << 20) / sizeof(float);  // of elements

// Where the closed forms hold: flows share fairly, threads take no time.
Hardware Ideal(double latency_s = 0) {
  return {.link_bytes_per_s = 1e8,
          .latency_s = latency_s,
          .message_s = 0,
          .update_bytes_per_s = 1e18,
          .shards = 1,
          .fair_flows = true};
}

Topology Ring(int workers) { return {TopologyKind::kRing, workers}; }

Topology Ps(int workers, int servers) {
  return {TopologyKind::kPs, workers, servers};
}

Topology Colocated(int workers, int spare = 0) {
  return {TopologyKind::kPs, workers, spare, true};
}

double Seconds(const Hardware& hardware, const Workload& workload,
               const Topology& topology, int64_t max_messages = 1 << 30) {
  return PredictStep(hardware, workload, topology,
                     {.max_messages = max_messages})
      .step_s;
}

MATCHER_P2(Within, percent, expected, "") {
  *result_listener << (arg / expected - 1) * 100 << "% off " << expected;
  return std::abs(arg / expected - 1) * 100 <= percent;
}

TEST(Ring, TakesWhatTheFormulaSays) {
  const Workload workload = {.buckets = {64 * kMiB}};
  for (const int n : {2, 3, 8, 16}) {
    EXPECT_THAT(Seconds(Ideal(), workload, Ring(n)),
                Within(0.5, RingSeconds(Ideal(), NumBytes(workload), n)));
  }
}

TEST(Ring, OfOneAppliesItsGradientsAndSendsNothing) {
  Hardware hardware = Ideal(/*latency_s=*/1);
  hardware.update_bytes_per_s = 1e6;
  EXPECT_THAT(Seconds(hardware, {.buckets = {100'000, 150'000}}, Ring(1)),
              Within(0.01, 1.0));
}

// Two hops by way of the owners, and log2(n) where everybody gets all values.
TEST(Ring, OfSmallBucketsTakesTheWayWithFewHops) {
  const Hardware hardware = Ideal(/*latency_s=*/1e-2);
  for (const int64_t max_messages : {int64_t{1} << 30, int64_t{1}}) {
    EXPECT_THAT(Seconds(hardware, {.buckets = {8192}}, Ring(16), max_messages),
                Within(5, 2 * hardware.latency_s));
    EXPECT_THAT(Seconds(hardware, {.buckets = {256}}, Ring(16), max_messages),
                Within(5, 4 * hardware.latency_s));
    EXPECT_THAT(Seconds(hardware, {.buckets = {256}}, Ring(5), max_messages),
                Within(5, 3 * hardware.latency_s));
  }
}

TEST(Ring, OfSmallMessagesPaysForEachOfThemOnSharedCores) {
  Hardware hardware = Ideal();
  hardware.shared_cores = 2;
  hardware.cpu_s_per_message = 1e-3;
  // 8 hosts send in 3 rounds, and each message wakes three threads.
  EXPECT_THAT(Seconds(hardware, {.buckets = {256}}, Ring(8)),
              Within(10, 3 * 8 * 3 * 1e-3 / 2));
  // 8 hosts send 7 messages, twice.
  for (const int64_t max_messages : {int64_t{1} << 30, int64_t{1}}) {
    EXPECT_THAT(Seconds(hardware, {.buckets = {16384}}, Ring(8), max_messages),
                Within(10, 2 * 8 * (7 + 2) * 1e-3 / 2));
  }
}

TEST(Ring, OfSmallSlicesPaysTheLatencyOfEveryHop) {
  const Workload workload = {.buckets = {16 * 1024 * 2}};
  const Hardware hardware = Ideal(/*latency_s=*/1e-3);
  EXPECT_THAT(Seconds(hardware, workload, Ring(16)),
              Within(0.5, RingSeconds(hardware, NumBytes(workload), 16)));
}

TEST(Ps, WithDedicatedServersTakesWhatTheFormulaSays) {
  const Workload workload = {.buckets = {64 * kMiB}};
  for (const auto& [n, s] :
       std::vector<std::pair<int, int>>{{2, 1}, {4, 1}, {8, 2}, {6, 4}}) {
    EXPECT_THAT(Seconds(Ideal(), workload, Ps(n, s)),
                Within(2, PsSeconds(Ideal(), NumBytes(workload), n, s)))
        << n << " workers, " << s << " servers";
  }
}

TEST(Ps, WithAServerOnEveryHostTakesWhatTheFormulaSays) {
  const Workload workload = {.buckets = {128 * kMiB}};
  for (const int n : {2, 4, 8}) {
    EXPECT_THAT(Seconds(Ideal(), workload, Colocated(n)),
                Within(1, ColocatedPsSeconds(Ideal(), NumBytes(workload), n)))
        << n << " workers";
  }
}

// As MapShards cuts it.
TEST(Ps, OfASmallModelNeedsOneThreadOfOneServer) {
  Hardware hardware = Ideal(/*latency_s=*/1e-4);
  hardware.message_s = 1e-5;
  const Workload small = {.buckets = {256}}, medium = {.buckets = {4 * 2048}};
  const double one = Seconds(hardware, small, Ps(4, 1));
  EXPECT_EQ(Seconds(hardware, small, Ps(4, 4)), one);
  hardware.shards = 4;
  EXPECT_EQ(Seconds(hardware, small, Ps(4, 4)), one);
  EXPECT_GT(Seconds(hardware, small, Colocated(4)), one / 2);
  EXPECT_LE(Seconds(hardware, small, Colocated(4)), one);
  EXPECT_LT(Seconds(hardware, medium, Ps(4, 4)),
            Seconds(hardware, medium, Ps(4, 1)));
}

TEST(Ps, WithSpareServersTooTakesWhatTheFormulaSays) {
  const Workload workload = {.buckets = {128 * kMiB}};
  for (const auto& [n, k] :
       std::vector<std::pair<int, int>>{{4, 1}, {4, 2}, {8, 3}}) {
    EXPECT_THAT(
        Seconds(Ideal(), workload, Colocated(n, k)),
        Within(1.5, ColocatedPsSeconds(Ideal(), NumBytes(workload), n, k)))
        << n << " workers, " << k << " spare hosts";
  }
}

TEST(Coarse, AgreesWithFine) {
  Hardware hardware = Ideal(/*latency_s=*/20e-6);
  hardware.message_s = 5e-6;
  hardware.update_bytes_per_s = 4e9;
  hardware.shards = 2;
  const Workload workload = {.buckets = {6 * kMiB, 6 * kMiB, 12 * kMiB},
                             .compute_s = {{0.2}}};
  for (const Topology& topology :
       {Ring(24), Ps(24, 4), Ps(24, 16), Colocated(24), Colocated(24, 8)}) {
    const double fine = Seconds(hardware, workload, topology);
    const double coarse = Seconds(hardware, workload, topology, 4000);
    EXPECT_THAT(coarse, Within(6, fine)) << Describe(topology);
  }
}

TEST(Coarse, AgreesWithFineWhereFlowsAreUneven) {
  const Hardware hardware = {.link_bytes_per_s = 1e8};
  const Workload workload = {.buckets = {6 * kMiB, 6 * kMiB, 12 * kMiB},
                             .compute_s = {{0.1, 0.12, 0.2}}};
  for (const Topology& topology :
       {Ps(24, 4), Ps(24, 16), Colocated(24), Colocated(24, 8)}) {
    const double fine = Seconds(hardware, workload, topology);
    const double coarse = Seconds(hardware, workload, topology, 4000);
    EXPECT_THAT(coarse, Within(10, fine)) << Describe(topology);
  }
}

// Each of which is a message between any two hosts.
TEST(Coarse, AgreesWithFineOfManyBuckets) {
  Hardware hardware = Ideal(/*latency_s=*/20e-6);
  hardware.message_s = 5e-6;
  const Workload workload = {.buckets = std::vector<int64_t>(100, 8 * kMiB),
                             .compute_s = {{4}}};
  for (const Topology& topology : {Ps(8, 2), Ps(8, 8), Colocated(8)}) {
    const double fine = Seconds(hardware, workload, topology);
    const double coarse = Seconds(hardware, workload, topology, 4000);
    EXPECT_THAT(coarse, Within(6, fine)) << Describe(topology);
    EXPECT_NE(coarse, fine) << Describe(topology);
  }
}

TEST(Coarse, AgreesWithFineWhereWorkersDiffer) {
  const Workload workload = {.buckets = {12 * kMiB, 12 * kMiB},
                             .compute_s = {{0.2, 0.21, 0.22, 0.25, 0.6}}};
  for (const Topology& topology : {Ring(16), Ps(16, 4), Colocated(16)}) {
    const double fine = Seconds(Ideal(), workload, topology);
    const double coarse = Seconds(Ideal(), workload, topology, 4000);
    EXPECT_THAT(coarse, Within(6, fine)) << Describe(topology);
  }
}

TEST(Step, HidesWhatIsExchangedWhileBackwardRuns) {
  Workload workload = {.buckets = std::vector<int64_t>(16, kMiB)};
  for (const Topology& topology : {Ring(4), Ps(4, 4), Colocated(4)}) {
    workload.compute_s.clear();
    const double exchange = Seconds(Ideal(), workload, topology);
    workload.compute_s = {{10 * exchange}};
    const double step = Seconds(Ideal(), workload, topology);
    EXPECT_GT(step, 10 * exchange);
    // What comes after backward is the last bucket, which in ps mode one server
    // has for itself.
    EXPECT_LT(step, 10.7 * exchange) << Describe(topology);
  }
}

TEST(Step, WaitsForTheSlowestWorker) {
  const Workload even = {.buckets = {kMiB}, .compute_s = {{0.1}}};
  const Workload uneven = {.buckets = {kMiB}, .compute_s = {{0.1, 0.1, 0.5}}};
  for (const Topology& topology : {Ring(8), Ps(8, 2), Colocated(8)}) {
    EXPECT_GT(Seconds(Ideal(), uneven, topology),
              Seconds(Ideal(), even, topology) + 0.1)
        << Describe(topology);
  }
}

// One of them that is long is as likely as any other.
TEST(Step, IsNeverAllOfTheTimesThatItComputesAndMore) {
  const Workload workload = {.buckets = {1000},
                             .compute_s = {{0.01, 0.01, 0.01, 0.01, 1}}};
  for (const uint64_t seed : {1, 2, 3, 4, 5}) {
    const Prediction p = PredictStep({}, workload, Ps(2, 1), {.seed = seed});
    EXPECT_LE(p.efficiency(), 1) << seed;
  }
  // The longer one of two: with one of ten pairs in 25 it is short.
  const Prediction p =
      PredictStep({}, workload, Ps(2, 1), {.steps = 2000, .seed = 1});
  EXPECT_THAT(p.step_s, Within(10, 0.36 * 1 + 0.64 * 0.01));
}

TEST(Step, IsNoLongerOnBetterHardware) {
  const Workload workload = {.buckets = {8 * kMiB, 8 * kMiB},
                             .compute_s = {{0.05}}};
  const Hardware base = {.link_bytes_per_s = 1e8};
  Hardware faster = base;
  faster.link_bytes_per_s *= 2;
  Hardware nearer = base;
  nearer.latency_s /= 10;
  for (const Topology& topology : {Ring(8), Ps(8, 2), Colocated(8)}) {
    const double step = Seconds(base, workload, topology);
    EXPECT_LT(Seconds(faster, workload, topology), step);
    // Messages that come in another order have other flows' turns.
    EXPECT_LE(Seconds(nearer, workload, topology), 1.005 * step);
  }
}

TEST(Step, IsTheSameForTheSameSeed) {
  const Workload workload = {.buckets = {kMiB, kMiB},
                             .compute_s = {{0.1, 0.2, 0.4}}};
  const auto step = [&](uint64_t seed) {
    return PredictStep({}, workload, Ps(6, 2), {.seed = seed}).step_s;
  };
  EXPECT_EQ(step(1), step(1));
  EXPECT_NE(step(1), step(2));
}

TEST(Step, OfSharedCoresTakesAtLeastTheirTime) {
  const Workload workload = {.buckets = {8 * kMiB}};
  Hardware hardware = Ideal();
  hardware.link_bytes_per_s = 1e12;
  hardware.shared_cores = 2;
  hardware.cpu_s_per_byte = 1e-9;
  const double bytes = 2.0 * 5 * NumBytes(workload);  // of a ring of 6
  EXPECT_THAT(Seconds(hardware, workload, Ring(6)),
              Within(2, bytes * 1e-9 / 2));
  EXPECT_THAT(Seconds(hardware, workload, Ring(6), 0),
              Within(2, bytes * 1e-9 / 2));
}

TEST(Step, OfThousandsOfHostsIsPredicted) {
  const Workload workload = {.buckets = std::vector<int64_t>(16, 25 * kMiB / 4),
                             .compute_s = {{0.1, 0.11, 0.12, 0.3}}};
  for (const Topology& topology : Candidates(4096, AutoServers(4096))) {
    const Prediction prediction = PredictStep({}, workload, topology);
    EXPECT_GT(prediction.step_s, 0.29) << Describe(topology);
    EXPECT_GE(prediction.p99_s * (1 + 1e-9), prediction.step_s)
        << Describe(topology);
  }
}

TEST(AutoServers, DoubleUpToAsManyAsWorkers) {
  EXPECT_THAT(AutoServers(1), ElementsAre(1));
  EXPECT_THAT(AutoServers(4), ElementsAre(1, 2, 4));
  EXPECT_THAT(AutoServers(5), ElementsAre(1, 2, 4, 5));
}

TEST(Candidates, AreEveryTopologyThatCanBeRun) {
  std::vector<std::string> names;
  for (const Topology& topology : Candidates(3, AutoServers(3))) {
    names.push_back(Describe(topology));
  }
  EXPECT_THAT(names, ElementsAre("ring", "ps, 1 server", "ps, 2 servers",
                                 "ps, 3 servers", "ps, a server on every host",
                                 "ps, a server on every host + 1",
                                 "ps, a server on every host + 2"));
}

// Which takes minutes of so large a model.
TEST(PredictStep, EndsWithinAStepOnceItIsCancelled) {
  for (const Topology& topology : {Ring(8), Ps(8, 8)}) {
    Cancellation cancellation;
    std::thread user([&cancellation] {
      cancellation.SleepUntil(Now() + absl::Milliseconds(100)).IgnoreError();
      cancellation.Cancel(absl::CancelledError("enough"));
    });
    const Workload workload = {.buckets =
                                   std::vector<int64_t>(40, 6400 * kMiB)};
    const Time start = Now();
    PredictStep(Hardware(), workload, topology, {.max_messages = 1 << 30},
                &cancellation);
    EXPECT_LT(Now() - start, absl::Seconds(20));
    user.join();
  }
}

}  // namespace
}  // namespace psring
