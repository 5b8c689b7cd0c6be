#include "ring/nccl/nccl_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/exchange/gradient_exchange.h"
#include "common/state/state_files.h"
#include "ring/nccl/host_sum_exchange.h"
#include "tests/testing/local_job.h"
#include "tests/testing/nccl_job.h"
#include "tests/testing/optimizer_state.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::ReadFile;
using testing::TestDirectory;
using Floats = std::vector<float>;

proto::JobSpec SpecOf(const std::string& optimizer) {
  proto::JobSpec spec = SmallSpec(proto::RING, proto::BSP);
  spec.mutable_optimizer()->set_name(optimizer);
  if (optimizer != "momentum") spec.mutable_optimizer()->clear_momentum();
  if (optimizer == "adam") {
    spec.mutable_optimizer()->set_beta1(0.9);
    spec.mutable_optimizer()->set_beta2(0.999);
    spec.mutable_optimizer()->set_epsilon(1e-8);
  }
  return spec;
}

Layout LayoutOf(const proto::JobSpec& spec) {
  return *Layout::Create({spec.tensors().begin(), spec.tensors().end()},
                         spec.bucket_bytes());
}

// What the trainer would hold.
struct GpuWorker {
  NcclRank& rank;
  DeviceModel model;
  LocalWorker host;  // its gradients are copied to the GPU
  std::unique_ptr<NcclExchange> exchange;

  int num_buckets() const { return model.layout.num_buckets(); }

  // As backward does: on the compute stream.
  void ComputeGradients(int64_t step) {
    FillGradients(host, step);
    const Floats values(host.model.gradients.data(),
                        host.model.gradients.data() + model.gradients.size());
    rank.device.Enqueue(kComputeStream, [values, to = model.gradients.data()] {
      std::copy(values.begin(), values.end(), to);
      return absl::OkStatus();
    });
  }

  absl::Status SubmitAll(int64_t step, bool reversed = false) {
    ComputeGradients(step);
    for (int b = 0; b < num_buckets(); ++b) {
      const int bucket = reversed ? num_buckets() - 1 - b : b;
      if (absl::Status s = exchange->Submit(bucket); !s.ok()) return s;
    }
    return absl::OkStatus();
  }

  absl::Status Step(int64_t step, bool reversed = false) {
    if (absl::Status s = SubmitAll(step, reversed); !s.ok()) return s;
    return exchange->Finish(Soon());
  }

  Floats Parameters() const {
    return {model.parameters.data(),
            model.parameters.data() + model.parameters.size()};
  }
};

using GpuBody = std::function<void(GpuWorker&)>;

struct GpuJobOptions {
  absl::Duration step_timeout = absl::Seconds(60);
  // Of a rank, where it differs.
  std::function<proto::JobSpec(int rank)> spec_of = nullptr;
};

// `body` once a rank, which starts with the parameters of TrainBody.
void RunGpuJob(NcclJob& job, const GpuBody& body,
               const GpuJobOptions& options = {}) {
  job.Run([&](NcclRank& rank) {
    if (options.spec_of) *rank.job.mutable_spec() = options.spec_of(rank.rank);
    const proto::JobSpec& spec = rank.job.spec();
    const int num_slots = Optimizer::Create(spec.optimizer())->num_slots();
    GpuWorker worker{
        rank, *DeviceModel::Create(rank.device, LayoutOf(spec), num_slots),
        LocalWorker(*FlatModel::Create(LayoutOf(spec))), nullptr};
    worker.host.rank = rank.rank;
    auto exchange = NcclExchange::Create(
        job.nccl().ApiOf(rank.device), rank.device, rank.cancellation,
        worker.model, rank.job, rank.options, options.step_timeout);
    ASSERT_TRUE(exchange.ok()) << exchange.status();
    worker.exchange = *std::move(exchange);
    const Layout& layout = worker.model.layout;
    for (size_t t = 0; rank.rank == 0 && t < layout.tensors().size(); ++t) {
      const Range range = layout.tensor(static_cast<int>(t));
      for (int64_t i = range.begin; i < range.end; ++i) {
        worker.model.parameters.data()[i] = static_cast<float>(i % 97) * 0.01f;
      }
    }
    body(worker);
    job.AwaitAll();
    worker.exchange.reset();
    EXPECT_EQ(rank.device.num_registered(), 0);
  });
}

std::vector<Floats> RingFinals(int n, const proto::JobSpec& spec, int steps) {
  LocalJobOptions options;
  options.spec = spec;
  options.num_workers = n;
  std::vector<Floats> finals(n);
  for (const absl::Status& s : RunLocalJob(options, TrainBody(steps, &finals)))
    EXPECT_TRUE(s.ok()) << s;
  return finals;
}

class NcclExchangeBitsTest
    : public ::testing::TestWithParam<std::tuple<int, const char*>> {};

// The fake sums in the canonical order.
TEST_P(NcclExchangeBitsTest, TrainsToTheBitsOfTheRingOnCpus) {
  const int n = std::get<0>(GetParam());
  const proto::JobSpec spec = SpecOf(std::get<1>(GetParam()));
  const Floats expected = RingFinals(n, spec, 3)[0];
  NcclJob job(n, spec);
  RunGpuJob(job, [&](GpuWorker& worker) {
    ASSERT_TRUE(worker.exchange->Join({}, Soon()).ok());
    Floats seen;  // by what comes behind Finish on the compute stream
    for (int step = 0; step < 3; ++step) {
      // Later steps' buckets become ready in another order on rank 1.
      const bool reversed = step > 0 && worker.rank.rank == 1;
      ASSERT_TRUE(worker.Step(step, reversed).ok());
      worker.rank.device.Enqueue(kComputeStream, [&] {
        seen = worker.Parameters();
        return absl::OkStatus();
      });
    }
    ASSERT_TRUE(worker.exchange->Synchronise(Before::kEvaluation, Soon()).ok());
    EXPECT_EQ(worker.Parameters(), expected);
    const Event read = *worker.rank.device.CreateEvent();
    ASSERT_TRUE(worker.rank.device.Record(read, kComputeStream).ok());
    ASSERT_TRUE(Await(worker.rank.device, read, Soon(), Cancellation()).ok());
    EXPECT_EQ(seen, expected);
    EXPECT_EQ(worker.exchange->traffic().sent > 0, n > 1);
  });
  EXPECT_EQ(job.nccl().num_aborts(), 0);
}

INSTANTIATE_TEST_SUITE_P(Ranks, NcclExchangeBitsTest,
                         ::testing::Combine(::testing::Values(1, 2, 3),
                                            ::testing::Values("sgd", "momentum",
                                                              "adam")));

// Backward goes on while NCCL prepares a launch.
TEST(NcclExchange, SubmitDoesNotWaitForALaunch) {
  NcclJob job(1, SpecOf("sgd"));
  RunGpuJob(job, [&](GpuWorker& worker) {
    ASSERT_TRUE(worker.exchange->Join({}, Soon()).ok());
    ASSERT_TRUE(worker.Step(0).ok());
    const int launched = job.nccl().num_launched();
    job.nccl().HoldLaunches(true);
    ASSERT_TRUE(worker.SubmitAll(1).ok());
    EXPECT_EQ(job.nccl().num_launched(), launched);
    job.nccl().HoldLaunches(false);
    ASSERT_TRUE(worker.exchange->Finish(Soon()).ok());
    EXPECT_EQ(job.nccl().num_launched(), launched + worker.num_buckets());
  });
}

// A call costs microseconds of the processor, which has a step's to describe.
TEST(NcclExchange, CallsTheGpuByBucketAndNotByTensor) {
  proto::JobSpec spec = SpecOf("momentum");
  for (int i = 0; i < 300; ++i) {
    proto::TensorShape& tensor = *spec.add_tensors();
    tensor.set_name(absl::StrCat("more", i));
    tensor.add_shape(4);
  }
  spec.set_bucket_bytes(8192);
  NcclJob job(2, spec);
  RunGpuJob(job, [&](GpuWorker& worker) {
    ASSERT_TRUE(worker.exchange->Join({}, Soon()).ok());
    ASSERT_TRUE(worker.Step(0).ok());
    const int64_t before = worker.rank.device.num_calls();
    ASSERT_TRUE(worker.Step(1).ok());
    // Two events, a wait, and the update; in the end an event and a wait.
    EXPECT_LE(worker.rank.device.num_calls() - before,
              4 * worker.num_buckets() + 2);
    EXPECT_LT(worker.num_buckets(), 20);
    ASSERT_TRUE(worker.exchange->Synchronise(Before::kEvaluation, Soon()).ok());
  });
}

TEST(NcclExchange, RanksThatWouldLaunchDifferentThingsAreRefusedBefore) {
  NcclJob job(2);
  GpuJobOptions options;
  options.spec_of = [](int rank) {
    proto::JobSpec spec = SpecOf("sgd");
    if (rank == 1) spec.mutable_tensors(2)->set_name("another");
    return spec;
  };
  std::atomic<int> launched = 0;
  RunGpuJob(
      job,
      [&](GpuWorker& worker) {
        ASSERT_TRUE(worker.exchange->Join({}, Soon()).ok());
        ASSERT_TRUE(
            worker.exchange->Synchronise(Before::kEvaluation, Soon()).ok());
        launched = job.nccl().num_launched();
        ASSERT_TRUE(worker.SubmitAll(0).ok());
        const absl::Status status = worker.exchange->Finish(Soon());
        EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
        EXPECT_THAT(
            std::string(status.message()),
            AllOf(HasSubstr("worker 0 (host h"), HasSubstr("worker 1 (host h"),
                  HasSubstr("allreduce of bucket ")));
      },
      options);
  EXPECT_EQ(job.nccl().num_launched(), launched);
}

// Its CPU goes on: what failed is the next call's.
TEST(NcclExchange, ALostPeerIsReturnedByTheNextCallWithTheCollective) {
  NcclJob job(2, SpecOf("momentum"));
  RunGpuJob(job, [](GpuWorker& worker) {
    ASSERT_TRUE(worker.exchange->Join({}, Soon()).ok());
    ASSERT_TRUE(worker.Step(0).ok());
    ASSERT_TRUE(worker.exchange->Synchronise(Before::kEvaluation, Soon()).ok());
    if (worker.rank.rank == 1) return;
    ASSERT_TRUE(worker.Step(1).ok());
    ASSERT_TRUE(worker.SubmitAll(2).ok());
    worker.rank.cancellation.Cancel(
        absl::UnavailableError("lost worker 1 (host h, pid 4712)"));
    const absl::Status status = worker.exchange->Finish(Soon());
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("allreduce of bucket 0, step 1"),
                      HasSubstr("lost worker 1 (host h, pid 4712)")));
    EXPECT_EQ(worker.exchange->Submit(0), status);
    EXPECT_EQ(worker.exchange->Synchronise(Before::kEvaluation, Soon()),
              status);
  });
}

TEST(NcclExchange, AWorkerThatDoesNotTakePartIsNamedWithStepAndBucket) {
  NcclJob job(3, SpecOf("momentum"));
  GpuJobOptions options;
  options.step_timeout = absl::Seconds(3);
  RunGpuJob(
      job,
      [](GpuWorker& worker) {
        ASSERT_TRUE(worker.exchange->Join({}, Soon()).ok());
        ASSERT_TRUE(worker.Step(0).ok());
        if (worker.rank.rank == 1) return;
        ASSERT_TRUE(worker.Step(1).ok());
        const absl::Status status =
            worker.exchange->Synchronise(Before::kEvaluation, Soon());
        EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
        EXPECT_THAT(std::string(status.message()),
                    AllOf(HasSubstr("allreduce of bucket 0, step 1"),
                          HasSubstr("worker 1 (host h)")));
      },
      options);
}

// A compute stream that is behind is nobody's fault.
TEST(NcclExchange, ABucketsTimeDoesNotRunBeforeItsGradientsAreReady) {
  NcclJob job(1, SpecOf("sgd"));
  GpuJobOptions options;
  options.step_timeout = absl::Seconds(2);
  RunGpuJob(
      job,
      [&](GpuWorker& worker) {
        ASSERT_TRUE(worker.exchange->Join({}, Soon()).ok());
        ASSERT_TRUE(worker.Step(0).ok());
        worker.rank.device.Stall(kComputeStream);
        ASSERT_TRUE(worker.Step(1).ok());
        const Event stalled = *worker.rank.device.CreateEvent();
        ASSERT_TRUE(worker.rank.device.Record(stalled, kComputeStream).ok());
        EXPECT_EQ(
            Await(worker.rank.device, stalled,
                  Now() + 1.5 * options.step_timeout, worker.rank.cancellation)
                .code(),
            absl::StatusCode::kDeadlineExceeded);
        EXPECT_TRUE(worker.rank.cancellation.status().ok());
        worker.rank.device.Release();
        EXPECT_TRUE(
            worker.exchange->Synchronise(Before::kEvaluation, Soon()).ok());
      },
      options);
}

// Of a host's leader, which gets the parameters from far away.
class SlowToJoin : public GradientExchange {
 public:
  explicit SlowToJoin(absl::Duration takes) : takes_(takes) {}

  absl::Status Join(std::vector<FlatBuffer>, ParametersArrived, Time) override {
    absl::SleepFor(takes_);
    return absl::OkStatus();
  }
  absl::Status Submit(int) override { return absl::OkStatus(); }
  absl::Status Finish(Time) override { return absl::OkStatus(); }
  int64_t step() const override { return 0; }
  absl::Status Synchronise(Before, Time) override { return absl::OkStatus(); }
  absl::StatusOr<proto::SavedState> SaveState(const std::string&,
                                              Time) override {
    return proto::SavedState();
  }
  absl::Status FetchSlots(absl::Span<float* const>, Time) override {
    return absl::OkStatus();
  }
  Traffic traffic() const override { return {}; }

 private:
  const absl::Duration takes_;
};

TEST(HostSumExchange, OthersWaitForALeaderThatIsSlowToJoin) {
  NcclJob job(2, SmallSpec(proto::RING, proto::BSP));
  job.Run([&](NcclRank& rank) {
    auto model =
        *DeviceModel::Create(rank.device, LayoutOf(rank.job.spec()), 0);
    const bool leads = rank.rank == 0;
    const auto exchange = HostSumExchange::Create(
        job.nccl().ApiOf(rank.device), rank.device, rank.cancellation, model,
        rank.job, rank.options,
        std::make_unique<SlowToJoin>(absl::Milliseconds(leads ? 400 : 0)),
        absl::Seconds(60));
    ASSERT_TRUE(exchange.ok()) << exchange.status();
    const absl::Status joined =
        (*exchange)->Join({}, Now() + absl::Milliseconds(100));
    EXPECT_TRUE(joined.ok()) << joined;
    job.AwaitAll();
  });
}

TEST(NcclExchange, RefusesAStepWithoutAllOfItsBuckets) {
  NcclJob job(1, SpecOf("sgd"));
  RunGpuJob(job, [](GpuWorker& worker) {
    ASSERT_TRUE(worker.exchange->Join({}, Soon()).ok());
    ASSERT_TRUE(worker.exchange->Submit(1).ok());
    EXPECT_FALSE(worker.exchange->Submit(1).ok());
    EXPECT_THAT(std::string(worker.exchange->Finish(Soon()).message()),
                HasSubstr("step 0 ends with 1 buckets of "));
  });
}

TEST(NcclExchange, RefusesAModelWithoutRoomForTheOptimizersState) {
  NcclJob job(1, SpecOf("adam"));
  NcclRank& rank = job.rank(0);
  DeviceModel model =
      *DeviceModel::Create(rank.device, LayoutOf(rank.job.spec()), 1);
  const auto exchange = NcclExchange::Create(
      job.nccl().ApiOf(rank.device), rank.device, rank.cancellation, model,
      rank.job, rank.options, absl::Seconds(60));
  EXPECT_EQ(exchange.status().message(),
            "a model with 1 optimizer slots; adam has 2");
}

absl::Status Save(GradientExchange& exchange, const Layout& layout,
                  const std::string& directory) {
  const std::vector<std::string> slots = {"momentum_buffer"};
  const auto saved = SaveStateFiles(exchange, directory, layout, slots, Soon());
  if (!saved.ok()) return saved.status();
  EXPECT_EQ(*FetchedSlots(exchange, layout, 1, Soon()),
            *SlotsInFiles(directory, layout, slots));
  return absl::OkStatus();
}

TEST(NcclExchange, WritesTheRingsCheckpointAndResumesFromItsState) {
  const proto::JobSpec spec = SpecOf("momentum");
  const std::string of_ring = TestDirectory(".ring");
  const std::string of_gpu = TestDirectory(".gpu");
  std::vector<Floats> unused(2);
  LocalJobOptions ring;
  ring.spec = spec;
  ring.num_workers = 2;
  const auto train = TrainBody(2, &unused);
  for (const absl::Status& s : RunLocalJob(ring, [&](LocalWorker& worker) {
         absl::Status status = train(worker);
         if (!status.ok() || worker.rank != 0) return status;
         return Save(*worker.exchange, worker.model.layout, of_ring);
       })) {
    EXPECT_TRUE(s.ok()) << s;
  }
  NcclJob job(2, spec);
  RunGpuJob(job, [&](GpuWorker& worker) {
    ASSERT_TRUE(worker.exchange->Join({}, Soon()).ok());
    ASSERT_TRUE(worker.Step(0).ok());
    ASSERT_TRUE(worker.Step(1).ok());
    if (worker.rank.rank != 0) return;
    const absl::Status saved =
        Save(*worker.exchange, worker.model.layout, of_gpu);
    EXPECT_TRUE(saved.ok()) << saved;
  });
  for (const char* file : {kModelFile, kOptimizerFile}) {
    EXPECT_EQ(ReadFile(of_gpu + "/" + file), ReadFile(of_ring + "/" + file));
  }
  const Floats whole = RingFinals(2, spec, 3)[0];
  proto::JobSpec rest = spec;
  rest.set_first_step(2);
  NcclJob resumed(2, rest);
  RunGpuJob(resumed, [&](GpuWorker& worker) {
    std::vector<FlatBuffer> slots;
    if (worker.rank.rank == 0) {
      slots.push_back(*FlatBuffer::Create(worker.model.parameters.size()));
      float* const slot = slots[0].data();
      std::vector<ExtraTensor> extras;
      ASSERT_TRUE(
          ReadStateFiles(of_gpu, worker.model.layout, {{"momentum_buffer"}},
                         worker.model.parameters.data(), {slot}, &extras)
              .ok());
    }
    ASSERT_TRUE(worker.exchange->Join(std::move(slots), Soon()).ok());
    ASSERT_TRUE(worker.Step(2).ok());
    ASSERT_TRUE(worker.exchange->Synchronise(Before::kEvaluation, Soon()).ok());
    EXPECT_EQ(worker.Parameters(), whole);
  });
}

}  // namespace
}  // namespace psring
