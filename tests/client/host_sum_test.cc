// Real servers and the real control plane under GPUs made of host memory and a
// NCCL of threads: what a host's GPUs sum before one of them pushes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/model_client.h"
#include "common/cluster/host_groups.h"
#include "gpu/device_model.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/fake_device.h"
#include "tests/testing/fake_nccl.h"
#include "tests/testing/local_job.h"

namespace psring {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Floats = std::vector<float>;
using Finals = std::vector<Floats>;

constexpr int kSteps = 4;

// Of few bits, so that sums of such values are exact in any order.
float Coarse(float value) { return std::round(value * 64) / 64; }

Floats CoarseGradients(LocalWorker& worker, int64_t step) {
  FillGradients(worker, step);
  Floats values(worker.model.gradients.data(),
                worker.model.gradients.data() + worker.model.gradients.size());
  for (float& value : values) value = Coarse(value);
  return values;
}

// The machines of a job: each worker has a GPU, and those of `sums`, by their
// turn to start, an NCCL.
struct Gpus {
  Gpus(int n, std::vector<int> s) : sums(std::move(s)) {
    for (int i = 0; i < n; ++i) {
      devices.push_back(std::make_unique<FakeDevice>(i));
    }
  }

  std::optional<NcclApi> NcclOf(int index) {
    if (std::count(sums.begin(), sums.end(), index) == 0) return std::nullopt;
    return nccl.ApiOf(*devices[index]);
  }

  const std::vector<int> sums;
  FakeNccl nccl;
  std::vector<std::unique_ptr<FakeDevice>> devices;  // end before nccl
};

struct GpuTraining {
  Gpus& gpus;
  std::function<Floats(LocalWorker&, int64_t step)> gradients_of;
  Finals finals;  // by rank
  // Before a worker's step, instead of which it returns an error.
  std::function<absl::Status(LocalWorker&, int64_t step)> before_step = nullptr;
  std::function<void(LocalWorker&, int64_t step)> before_bucket = nullptr;
  std::vector<int64_t> sent = {};  // bytes of gradients, by rank
};

Floats Values(const DeviceModel& model) {
  return {model.parameters.data(),
          model.parameters.data() + model.parameters.size()};
}

absl::Status Train(LocalWorker& worker, GpuTraining& training) {
  FakeDevice& device = *training.gpus.devices[worker.index];
  DeviceModel model = *DeviceModel::Create(device, worker.model.layout, 0);
  const auto n = static_cast<size_t>(model.parameters.size());
  const GpuModel gpu{device, model};
  auto exchange = worker.client->Connect(nullptr, nullptr, &gpu);
  if (!exchange.ok()) return exchange.status();
  device.Enqueue(kComputeStream, [&] {
    std::fill_n(model.parameters.data(), n,
                static_cast<float>(worker.rank + 1));
    return absl::OkStatus();
  });
  if (auto s = (*exchange)->Join({}, Soon()); !s.ok()) return s;
  Floats after_finish;
  for (int step = 0; step < kSteps; ++step) {
    if (training.before_step) {
      if (auto s = training.before_step(worker, step); !s.ok()) return s;
    }
    const Floats gradients = training.gradients_of(worker, step);
    device.Enqueue(kComputeStream, [&model, gradients] {
      for (size_t i = 0; i < gradients.size(); ++i) {
        // Of the parameters that are there when its turn comes.
        model.gradients.data()[i] =
            gradients[i] + Coarse(model.parameters.data()[i]);
      }
      return absl::OkStatus();
    });
    for (int b = worker.model.layout.num_buckets(); b-- > 0;) {
      if (training.before_bucket) training.before_bucket(worker, step);
      // What fills a bucket reads its parameters, for as long as it takes.
      const Range range = worker.model.layout.bucket(b);
      device.Enqueue(kComputeStream, [&model, range] {
        const float* const values = model.parameters.data() + range.begin;
        const Floats before(values, values + range.size());
        absl::SleepFor(absl::Milliseconds(1));
        EXPECT_TRUE(std::equal(before.begin(), before.end(), values));
        return absl::OkStatus();
      });
      if (auto s = (*exchange)->Submit(b); !s.ok()) return s;
    }
    if (auto s = (*exchange)->Finish(Soon()); !s.ok()) return s;
    after_finish = Values(model);
    if ((*exchange)->step() != step + 1) {
      return absl::InternalError("it has lost count of its steps");
    }
  }
  if (auto s = (*exchange)->Synchronise(Before::kSaveState, Soon()); !s.ok()) {
    return s;
  }
  device.AwaitIdle();
  training.finals[worker.rank] = Values(model);
  if (!training.sent.empty()) {
    training.sent[worker.rank] = (*exchange)->traffic().gradients_sent;
  }
  // Whoever does not push waits for the leader in Finish, as for others.
  const proto::Welcome& job = worker.client->job();
  if (HostGroupOf(job, job.rank()).front() != job.rank()) {
    EXPECT_EQ(after_finish, training.finals[worker.rank]);
  }
  return absl::OkStatus();
}

LocalJobOptions PsJob(int workers, SameHost same_host = SameHost::kAuto) {
  LocalJobOptions options;
  options.spec = SmallSpec(proto::PARAMETER_SERVER, proto::BSP);
  options.num_workers = workers;
  options.num_servers = 2;
  options.same_host = same_host;
  return options;
}

// By rank, after kSteps steps; `sums` as Gpus'. `hosts`: each worker's, by its
// turn to start.
Finals TrainPs(int n, const std::vector<int>& sums, SameHost same_host,
               const std::string& hosts = "1111") {
  Gpus gpus(n, sums);
  GpuTraining training{gpus, CoarseGradients, Finals(n)};
  LocalJobOptions options = PsJob(n, same_host);
  options.nccl_of = [&](int index) { return gpus.NcclOf(index); };
  options.host_of = [&](int index) { return hosts.substr(index, 1); };
  for (const absl::Status& s : RunLocalJob(
           options, [&](LocalWorker& w) { return Train(w, training); })) {
    EXPECT_TRUE(s.ok()) << s;
  }
  return training.finals;
}

// The same on CPUs, in a ring.
Finals TrainRing(int n) {
  LocalJobOptions options;
  options.spec = SmallSpec(proto::RING, proto::BSP);
  options.num_workers = n;
  Finals finals(n);
  const auto train = [&](LocalWorker& worker) {
    float* const parameters = worker.model.parameters.data();
    const int64_t size = worker.model.parameters.size();
    std::fill_n(parameters, size, static_cast<float>(worker.rank + 1));
    if (auto s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
    for (int step = 0; step < kSteps; ++step) {
      const Floats gradients = CoarseGradients(worker, step);
      for (int64_t i = 0; i < size; ++i) {
        worker.model.gradients.data()[i] = gradients[i] + Coarse(parameters[i]);
      }
      for (int b = worker.model.layout.num_buckets(); b-- > 0;) {
        if (auto s = worker.exchange->Submit(b); !s.ok()) return s;
      }
      if (auto s = worker.exchange->Finish(Soon()); !s.ok()) return s;
    }
    finals[worker.rank] = {parameters, parameters + size};
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, train)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  return finals;
}

class HostSum : public ::testing::TestWithParam<SameHost> {};

TEST_P(HostSum, ServersAndTheRingAgreeToTheBit) {
  for (const int n : {2, 3}) {
    const Finals ring = TrainRing(n);
    ASSERT_NE(ring[0][0], 1.0f);
    std::vector<int> all = {0, 1, 2};
    all.resize(n);
    EXPECT_EQ(TrainPs(n, all, GetParam()), ring) << n << " workers";
  }
}

TEST_P(HostSum, AWorkerWithoutNcclPushesItsOwn) {
  EXPECT_EQ(TrainPs(4, {0, 3}, GetParam()), TrainRing(4));
}

TEST_P(HostSum, EachHostPushesASumOfItsOwn) {
  CapturedLog log;
  EXPECT_EQ(TrainPs(4, {0, 1, 2, 3}, GetParam(), "1221"), TrainRing(4));
  EXPECT_EQ(log.Count("NCCL sums the gradients of 2 workers"), 4);
  EXPECT_EQ(TrainPs(4, {0, 1, 2, 3}, GetParam(), "1112"), TrainRing(4));
  EXPECT_EQ(log.Count("NCCL sums the gradients of 3 workers"), 3);
}

INSTANTIATE_TEST_SUITE_P(All, HostSum,
                         ::testing::Values(SameHost::kAuto, SameHost::kOff),
                         [](const auto& info) {
                           return info.param == SameHost::kAuto ? "memory"
                                                                : "messages";
                         });

TEST(HostSumJob, SaysWhoPushesForWhom) {
  CapturedLog log;
  TrainPs(3, {0, 1, 2}, SameHost::kAuto);
  EXPECT_EQ(log.Count("NCCL sums the gradients of 3 workers of this host; "
                      "worker 0 pushes them"),
            3);
}

// One push a host, of half as many bytes.
TEST(HostSumJob, TheLeaderCompressesTheSum) {
  std::vector<std::vector<int64_t>> sent;
  for (const char* compress : {"", "fp16"}) {
    Gpus gpus(4, {0, 1, 2, 3});
    GpuTraining training{gpus, CoarseGradients, Finals(4)};
    training.sent.resize(4);
    LocalJobOptions options = PsJob(4, SameHost::kOff);
    options.spec.set_compress(compress);
    options.nccl_of = [&](int index) { return gpus.NcclOf(index); };
    options.host_of = [](int index) { return index < 2 ? "a" : "b"; };
    for (const absl::Status& s : RunLocalJob(
             options, [&](LocalWorker& w) { return Train(w, training); })) {
      EXPECT_TRUE(s.ok()) << s;
    }
    sent.push_back(training.sent);
  }
  const int64_t all = sent[0][0];
  EXPECT_GT(all, 0);
  EXPECT_THAT(sent[0], UnorderedElementsAre(all, all, 0, 0));
  EXPECT_THAT(sent[1], UnorderedElementsAre(all / 2, all / 2, 0, 0));
}

// One that is alone with its NCCL sums with nobody.
TEST(HostSumJob, OneWorkerOfAHostNeedsNoNccl) {
  CapturedLog log;
  EXPECT_EQ(TrainPs(2, {1}, SameHost::kAuto), TrainRing(2));
  EXPECT_EQ(log.Count("NCCL sums"), 0);
}

// Also where it sums, leads and hands on.
TEST(HostSumJob, CallsTheGpuByBucketAndNotByTensor) {
  Gpus gpus(2, {0, 1});
  GpuTraining training{gpus, CoarseGradients, Finals(2)};
  LocalJobOptions options = PsJob(2);
  for (int i = 0; i < 300; ++i) {
    proto::TensorShape& tensor = *options.spec.add_tensors();
    tensor.set_name(absl::StrCat("more", i));
    tensor.add_shape(4);
  }
  options.spec.set_bucket_bytes(8192);
  options.nccl_of = [&](int index) { return gpus.NcclOf(index); };
  std::vector<int64_t> calls(2);
  training.before_step = [&](LocalWorker& worker, int64_t step) {
    const int64_t so_far = gpus.devices[worker.index]->num_calls();
    if (step == 2) {
      const int num_buckets = worker.model.layout.num_buckets();
      EXPECT_LT(num_buckets, 20);
      EXPECT_LE(so_far - calls[worker.rank], 10 * num_buckets + 8)
          << "worker " << worker.rank;
    }
    calls[worker.rank] = so_far;
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(
           options, [&](LocalWorker& w) { return Train(w, training); })) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

// However long a step takes whose pieces keep coming.
TEST(HostSumJob, AWorkerWaitsForAsLongAsItsLeader) {
  Gpus gpus(3, {0, 1});
  GpuTraining training{gpus, CoarseGradients, Finals(3)};
  LocalJobOptions options = PsJob(3, SameHost::kOff);
  options.num_servers = 1;
  options.step_timeout = absl::Seconds(4);
  for (int i = 0; i < 100; ++i) {
    proto::TensorShape& tensor = *options.spec.add_tensors();
    tensor.set_name(absl::StrCat("more", i));
    tensor.add_shape(1000);
  }
  options.nccl_of = [&](int index) { return gpus.NcclOf(index); };
  options.host_of = [](int index) { return index < 2 ? "a" : "b"; };
  // The others compute so slowly that they send all gradients early, which then
  // wait for almost the whole step.
  constexpr absl::Duration kPause = absl::Milliseconds(100);
  constexpr absl::Duration kOthersPause = absl::Milliseconds(5);
  absl::Duration slept;
  training.before_bucket = [&](LocalWorker& worker, int64_t step) {
    if (step != 2) return;
    absl::SleepFor(worker.index == 2 ? kPause : kOthersPause);
    if (worker.index == 2) slept += kPause;
  };
  for (const absl::Status& s : RunLocalJob(
           options, [&](LocalWorker& w) { return Train(w, training); })) {
    EXPECT_TRUE(s.ok()) << s;
  }
  EXPECT_GT(slept, 2.5 * options.step_timeout);  // of its backstop, too
}

TEST(HostSumJob, AWorkerThatDoesNotComeIsNamed) {
  Gpus gpus(3, {0, 1, 2});
  GpuTraining training{gpus, CoarseGradients, Finals(3)};
  LocalJobOptions options = PsJob(3);
  options.step_timeout = absl::Seconds(4);
  options.nccl_of = [&](int index) { return gpus.NcclOf(index); };
  training.before_step = [](LocalWorker& worker, int64_t step) {
    if (worker.rank != 1 || step != 2) return absl::OkStatus();
    // Hangs, until the others have given up.
    while (worker.cancellation.status().ok())
      absl::SleepFor(absl::Seconds(0.1));
    return worker.cancellation.status();
  };
  const auto results =
      RunLocalJob(options, [&](LocalWorker& w) { return Train(w, training); });
  EXPECT_THAT(results, Each(::testing::Property(&absl::Status::message,
                                                HasSubstr("worker 1 (host"))));
}

}  // namespace
}  // namespace psring
