// Real exchanges under a GPU made of host memory, whose streams run behind
// everybody's back.
#include "gpu/staged_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/exchange/forwarding_exchange.h"
#include "common/mutex.h"
#include "tests/testing/fake_device.h"
#include "tests/testing/local_job.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Finals = std::vector<std::vector<float>>;
constexpr int kSteps = 4;

// A worker with a GPU: its exchange is staged.
struct GpuWorker {
  explicit GpuWorker(LocalWorker& worker,
                     absl::Duration timeout = absl::Seconds(60))
      : device(worker.rank),
        model(*DeviceModel::Create(device, worker.model.layout, 0)) {
    auto staged = StagedExchange::Create(device, model, worker.model,
                                         std::move(worker.exchange),
                                         worker.cancellation, timeout);
    EXPECT_TRUE(staged.ok()) << staged.status();
    exchange = *std::move(staged);
  }

  FakeDevice device;
  DeviceModel model;
  std::unique_ptr<GradientExchange> exchange;
};

// What backward does: on the compute stream, gradients that depend on the
// parameters which are there when its turn comes.
void ComputeGradients(GpuWorker& gpu, const std::vector<float>& given) {
  gpu.device.Enqueue(kComputeStream, [&gpu, given] {
    for (size_t i = 0; i < given.size(); ++i) {
      gpu.model.gradients.data()[i] =
          given[i] + 0.01f * gpu.model.parameters.data()[i];
    }
    return absl::OkStatus();
  });
}

std::vector<float> Copy(FlatBuffer& buffer) {
  return {buffer.data(), buffer.data() + buffer.size()};
}

absl::Status Await(GpuWorker& gpu, LocalWorker& worker) {
  auto event = gpu.device.CreateEvent();
  absl::Status status = gpu.device.Record(*event, kComputeStream);
  if (!status.ok()) return status;
  return psring::Await(gpu.device, *event, Soon(), worker.cancellation);
}

absl::Status TrainOnGpu(LocalWorker& worker, Finals& finals) {
  GpuWorker gpu(worker);
  const auto n = static_cast<size_t>(worker.model.parameters.size());
  gpu.device.Enqueue(kComputeStream, [&] {
    std::fill_n(gpu.model.parameters.data(), n,
                static_cast<float>(worker.rank + 1));
    return absl::OkStatus();
  });
  if (auto s = gpu.exchange->Join({}, Soon()); !s.ok()) return s;
  for (int step = 0; step < kSteps; ++step) {
    FillGradients(worker, step);
    ComputeGradients(gpu, Copy(worker.model.gradients));
    for (int b = worker.model.layout.num_buckets(); b-- > 0;) {
      if (auto s = gpu.exchange->Submit(b); !s.ok()) return s;
    }
    if (auto s = gpu.exchange->Finish(Soon()); !s.ok()) return s;
  }
  if (auto s = gpu.exchange->Synchronise(Before::kEvaluation, Soon()); !s.ok())
    return s;
  if (auto s = Await(gpu, worker); !s.ok()) return s;
  finals[worker.rank].assign(gpu.model.parameters.data(),
                             gpu.model.parameters.data() + n);
  worker.exchange = std::move(gpu.exchange);
  worker.exchange.reset();
  return absl::OkStatus();
}

// The same without a GPU.
absl::Status TrainOnHost(LocalWorker& worker, Finals& finals) {
  std::fill_n(worker.model.parameters.data(), worker.model.parameters.size(),
              static_cast<float>(worker.rank + 1));
  if (auto s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
  for (int step = 0; step < kSteps; ++step) {
    FillGradients(worker, step);
    for (int64_t i = 0; i < worker.model.gradients.size(); ++i) {
      worker.model.gradients.data()[i] +=
          0.01f * worker.model.parameters.data()[i];
    }
    for (int b = worker.model.layout.num_buckets(); b-- > 0;) {
      if (auto s = worker.exchange->Submit(b); !s.ok()) return s;
    }
    if (auto s = worker.exchange->Finish(Soon()); !s.ok()) return s;
  }
  finals[worker.rank] = Copy(worker.model.parameters);
  return absl::OkStatus();
}

using Train = absl::Status(LocalWorker&, Finals&);

Finals RunJob(proto::Mode mode, SameHost same_host, Train* train) {
  LocalJobOptions options;
  options.spec = SmallSpec(mode, proto::BSP);
  options.num_workers = 2;
  options.num_servers = mode == proto::RING ? 0 : 2;
  options.same_host = same_host;
  Finals finals(options.num_workers);
  for (const absl::Status& s :
       RunLocalJob(options, [&](LocalWorker& w) { return train(w, finals); })) {
    EXPECT_TRUE(s.ok()) << s;
  }
  return finals;
}

class Staged
    : public ::testing::TestWithParam<std::pair<proto::Mode, SameHost>> {};

TEST_P(Staged, TrainsToTheSameBitsAsOnTheHost) {
  const auto& [mode, same_host] = GetParam();
  const Finals host = RunJob(mode, same_host, TrainOnHost);
  EXPECT_NE(host[0][0], 1.0f);
  EXPECT_EQ(RunJob(mode, same_host, TrainOnGpu), host);
}

INSTANTIATE_TEST_SUITE_P(
    All, Staged,
    ::testing::Values(std::pair(proto::PARAMETER_SERVER, SameHost::kAuto),
                      std::pair(proto::PARAMETER_SERVER, SameHost::kOff),
                      std::pair(proto::RING, SameHost::kAuto),
                      std::pair(proto::RING, SameHost::kOff)));

LocalJobOptions OneServer() {
  LocalJobOptions options;
  options.spec = SmallSpec(proto::PARAMETER_SERVER, proto::BSP);
  return options;
}

struct GpuJob {
  LocalJobOptions options = OneServer();
  absl::Duration timeout = absl::Seconds(60);
  // To the worker's exchange, before that is staged.
  std::function<void(LocalWorker&)> prepare = nullptr;
};

// Every process's, of a job whose worker has joined and then does `what`.
std::vector<absl::Status> RunOnGpu(
    const GpuJob& job,
    const std::function<absl::Status(LocalWorker&, GpuWorker&)>& what) {
  return RunLocalJob(job.options, [&](LocalWorker& worker) {
    if (job.prepare != nullptr) job.prepare(worker);
    GpuWorker gpu(worker, job.timeout);
    if (auto s = gpu.exchange->Join({}, Soon()); !s.ok()) return s;
    const absl::Status status = what(worker, gpu);
    gpu.exchange.reset();
    return status;
  });
}

void ExpectOk(const std::vector<absl::Status>& statuses) {
  for (const absl::Status& s : statuses) EXPECT_TRUE(s.ok()) << s;
}

absl::Status SubmitAll(LocalWorker& worker, GpuWorker& gpu) {
  for (int b = 0; b < worker.model.layout.num_buckets(); ++b) {
    if (auto s = gpu.exchange->Submit(b); !s.ok()) return s;
  }
  return absl::OkStatus();
}

TEST(StagedExchange, AGpuThatHangsIsNamedWithTheBucket) {
  absl::Status finished;
  RunOnGpu({.timeout = absl::Milliseconds(50)},
           [&](LocalWorker& worker, GpuWorker& gpu) {
             gpu.device.Stall(kComputeStream);
             if (auto s = SubmitAll(worker, gpu); !s.ok()) return s;
             finished = gpu.exchange->Finish(Soon());
             gpu.device.Release();
             return finished;
           });
  EXPECT_EQ(finished.code(), absl::StatusCode::kDeadlineExceeded) << finished;
  EXPECT_THAT(std::string(finished.message()),
              AllOf(HasSubstr("bucket 0"), HasSubstr("GPU 0")));
}

// What waits for the others in Finish has its whole time after that.
TEST(StagedExchange, OthersAreNotLateWhereTheGpuTakesLong) {
  ExpectOk(RunOnGpu({}, [&](LocalWorker& worker, GpuWorker& gpu) {
    gpu.device.Stall(kComputeStream);
    if (auto s = SubmitAll(worker, gpu); !s.ok()) return s;
    std::thread releases([&] {
      absl::SleepFor(absl::Seconds(2.5));
      gpu.device.Release();
    });
    const absl::Status finished =
        gpu.exchange->Finish(Now() + absl::Seconds(2));
    releases.join();
    return finished;
  }));
}

// Where a step has begun.
TEST(StagedExchange, WhoMeetsTheOthersWaitsForItsBuckets) {
  GpuJob job;
  job.options.same_host = SameHost::kOff;
  ExpectOk(RunOnGpu(job, [&](LocalWorker& worker, GpuWorker& gpu) {
    for (int b = 0; b < worker.model.layout.num_buckets(); ++b) {
      if (auto s = gpu.exchange->Submit(b); !s.ok()) return s;
      EXPECT_GE(gpu.exchange->traffic().sent, 0);
    }
    if (auto s = gpu.exchange->Synchronise(Before::kSaveState, Soon());
        !s.ok()) {
      return s;
    }
    if (auto s = gpu.exchange->Finish(Soon()); !s.ok()) return s;
    EXPECT_GT(gpu.exchange->traffic().gradients_sent, 0);
    return absl::OkStatus();
  }));
}

// It would never end if the exchange waited for the GPU.
TEST(StagedExchange, EndsWithoutAGpuThatHangs) {
  RunOnGpu({.timeout = absl::InfiniteDuration()},
           [&](LocalWorker& worker, GpuWorker& gpu) {
             gpu.device.Stall(kComputeStream);
             if (auto s = gpu.exchange->Submit(0); !s.ok()) return s;
             gpu.exchange.reset();
             gpu.device.Release();
             return absl::OkStatus();
           });
}

// Says which buckets the inner exchange has got, and takes none while it is
// held.
class Overheard : public ForwardingExchange {
 public:
  explicit Overheard(std::unique_ptr<GradientExchange> inner)
      : ForwardingExchange(std::move(inner)) {}

  absl::Status Submit(int bucket) override {
    MutexLock lock(&mutex_);
    mutex_.Await([&] { return !held_; });
    submitted_.push_back(bucket);
    return inner().Submit(bucket);
  }

  void Hold(bool held) {
    MutexLock lock(&mutex_);
    held_ = held;
  }
  size_t num_submitted() {
    MutexLock lock(&mutex_);
    return submitted_.size();
  }
  // Whether there are so many in time.
  bool Await(size_t number) {
    MutexLock lock(&mutex_);
    return mutex_.AwaitUntil([&] { return submitted_.size() >= number; },
                             Soon());
  }

 private:
  Mutex mutex_;
  bool held_ = false;
  std::vector<int> submitted_;
};

GpuJob OverheardJob(Overheard*& overheard) {
  GpuJob job;
  job.prepare = [&overheard](LocalWorker& worker) {
    auto made = std::make_unique<Overheard>(std::move(worker.exchange));
    overheard = made.get();
    worker.exchange = std::move(made);
  };
  return job;
}

// With nobody's help: what backward has still to do takes its time.
TEST(StagedExchange, WhatHasArrivedLeaves) {
  Overheard* overheard = nullptr;
  ExpectOk(RunOnGpu(
      OverheardJob(overheard), [&](LocalWorker& worker, GpuWorker& gpu) {
        for (int b = 0; b < worker.model.layout.num_buckets(); ++b) {
          gpu.device.Stall(kComputeStream);
          if (auto s = gpu.exchange->Submit(b); !s.ok()) return s;
          EXPECT_EQ(overheard->num_submitted(), b);
          gpu.device.Release();
          EXPECT_TRUE(overheard->Await(b + 1));
        }
        return gpu.exchange->Finish(Soon());
      }));
}

// One that compresses, say: the thread that runs backward has more to do.
TEST(StagedExchange, BackwardDoesNotWaitForASlowExchange) {
  Overheard* overheard = nullptr;
  ExpectOk(RunOnGpu(OverheardJob(overheard),
                    [&](LocalWorker& worker, GpuWorker& gpu) {
                      overheard->Hold(true);
                      if (auto s = SubmitAll(worker, gpu); !s.ok()) return s;
                      EXPECT_EQ(overheard->num_submitted(), 0);
                      overheard->Hold(false);
                      return gpu.exchange->Finish(Soon());
                    }));
}

// Has the parameters of the next step, 7 each, as soon as it has gradients, of
// which the exchange inside gets none.
class AnswersAtOnce : public ForwardingExchange {
 public:
  AnswersAtOnce(FlatModel& model, std::unique_ptr<GradientExchange> inner)
      : ForwardingExchange(std::move(inner)), model_(model) {}

  absl::Status Join(std::vector<FlatBuffer> slots, ParametersArrived arrived,
                    Time deadline) override {
    arrived_ = std::move(arrived);
    return inner().Join(std::move(slots), nullptr, deadline);
  }
  absl::Status Submit(int bucket) override {
    const Range range = model_.layout.bucket(bucket);
    std::fill_n(model_.parameters.data() + range.begin, range.size(), 7.0f);
    arrived_(bucket);
    return absl::OkStatus();
  }
  absl::Status Finish(Time) override { return absl::OkStatus(); }

 private:
  FlatModel& model_;
  ParametersArrived arrived_;
};

TEST(StagedExchange, ABucketReturnsWhileBackwardGoesOn) {
  GpuJob job;
  job.options.spec = SmallSpec(proto::RING, proto::BSP);
  job.options.num_workers = 1;
  job.options.num_servers = 0;
  job.prepare = [](LocalWorker& worker) {
    worker.exchange = std::make_unique<AnswersAtOnce>(
        worker.model, std::move(worker.exchange));
  };
  ExpectOk(RunOnGpu(job, [&](LocalWorker& worker, GpuWorker& gpu) {
    const Layout& layout = worker.model.layout;
    EXPECT_GE(layout.num_buckets(), 2);
    gpu.device.AwaitIdle();
    const int64_t before = gpu.device.num_copies();
    if (auto s = gpu.exchange->Submit(0); !s.ok()) return s;
    gpu.device.Stall(kComputeStream);  // the next bucket takes long
    if (auto s = gpu.exchange->Submit(1); !s.ok()) return s;
    EXPECT_TRUE(gpu.device.AwaitCopies(before + 2, Soon()));
    const float* const found = gpu.model.parameters.data();
    const Range first = layout.bucket(0);
    EXPECT_EQ(found[first.begin], 7);
    EXPECT_EQ(found[first.end - 1], 7);
    EXPECT_NE(found[layout.bucket(1).begin], 7);
    gpu.device.Release();
    for (int b = 2; b < layout.num_buckets(); ++b) {
      if (auto s = gpu.exchange->Submit(b); !s.ok()) return s;
    }
    if (auto s = gpu.exchange->Finish(Soon()); !s.ok()) return s;
    if (auto s = Await(gpu, worker); !s.ok()) return s;
    EXPECT_EQ(found[0], 7);
    return absl::OkStatus();
  }));
}

// A call costs microseconds of the processor, which has a step's to describe.
TEST(StagedExchange, CallsTheGpuByBucketAndNotByTensor) {
  GpuJob job;
  for (int i = 0; i < 300; ++i) {
    proto::TensorShape& tensor = *job.options.spec.add_tensors();
    tensor.set_name(absl::StrCat("more", i));
    tensor.add_shape(4);
  }
  job.options.spec.set_bucket_bytes(8192);
  ExpectOk(RunOnGpu(job, [&](LocalWorker& worker, GpuWorker& gpu) {
    const int num_buckets = worker.model.layout.num_buckets();
    const int64_t before = gpu.device.num_calls();
    for (int b = num_buckets; b-- > 0;) {
      if (auto s = gpu.exchange->Submit(b); !s.ok()) return s;
    }
    if (auto s = gpu.exchange->Finish(Soon()); !s.ok()) return s;
    // Out: an event, its wait, the copy and another event. Back: a copy.
    EXPECT_LE(gpu.device.num_calls() - before, 6 * num_buckets + 4);
    EXPECT_LT(num_buckets, 20);
    return absl::OkStatus();
  }));
}

// CUDA does not promise to wait for them.
TEST(StagedExchange, UnlocksNoMemoryFromWhichParametersReturn) {
  ExpectOk(RunOnGpu({}, [&](LocalWorker& worker, GpuWorker& gpu) {
    gpu.device.Stall(kComputeStream);
    const absl::Status met =
        gpu.exchange->Synchronise(Before::kEvaluation, Soon());
    absl::Notification ended;
    std::thread ends([&] {
      gpu.exchange.reset();
      ended.Notify();
    });
    EXPECT_FALSE(ended.WaitForNotificationWithTimeout(absl::Milliseconds(100)));
    gpu.device.Release();
    ends.join();
    EXPECT_EQ(gpu.device.num_registered(), 0);
    return met.ok() ? Await(gpu, worker) : met;
  }));
}

TEST(StagedExchange, UnlocksTheHostsMemory) {
  ExpectOk(RunOnGpu({}, [&](LocalWorker& worker, GpuWorker& gpu) {
    EXPECT_EQ(gpu.device.num_registered(), 2);
    gpu.exchange.reset();
    EXPECT_EQ(gpu.device.num_registered(), 0);
    return absl::OkStatus();
  }));
}

}  // namespace
}  // namespace psring
