// Real exchanges under a GPU made of host memory, against the same training in
// the host's memory.
#include "gpu/device_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "client/model_client.h"
#include "tests/testing/fake_device.h"
#include "tests/testing/local_job.h"
#include "tests/testing/optimizer_state.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<float>;
using Finals = std::vector<Floats>;

constexpr int kWorkers = 3;
constexpr int kPeriod = 3;
constexpr int kSteps = 7;  // averaged after 3, 6, and before the end

LocalJobOptions JobOf(proto::Mode mode, const std::string& optimizer) {
  LocalJobOptions options;
  options.spec = SmallSpec(mode, proto::BSP);
  options.spec.set_local_steps(kPeriod);
  options.spec.mutable_optimizer()->set_name(optimizer);
  if (optimizer == "adam") {
    options.spec.mutable_optimizer()->clear_momentum();
    options.spec.mutable_optimizer()->set_beta1(0.9);
    options.spec.mutable_optimizer()->set_beta2(0.999);
    options.spec.mutable_optimizer()->set_epsilon(1e-8);
  }
  options.num_workers = kWorkers;
  options.num_servers = 2;
  return options;
}

// What a resumed run hands in, for the host and for a GPU alike.
std::vector<FlatBuffer> FirstSlots(const LocalWorker& worker) {
  const proto::JobSpec& spec = worker.client->spec();
  std::vector<FlatBuffer> slots;
  for (int s = 0; s < Optimizer::Create(spec.optimizer())->num_slots(); ++s) {
    slots.push_back(*FlatBuffer::Create(worker.model.parameters.size()));
    std::fill_n(slots.back().data(), slots.back().size(), 0.25f);
  }
  return slots;
}

Floats Copy(const float* data, int64_t size) { return {data, data + size}; }

absl::Status Train(LocalWorker& worker, GradientExchange& exchange,
                   const std::function<void()>& compute_gradients) {
  absl::Status status = exchange.Join(FirstSlots(worker), Soon());
  for (int step = 0; status.ok() && step < kSteps; ++step) {
    FillGradients(worker, step);
    compute_gradients();
    for (int b = worker.model.layout.num_buckets(); b-- > 0;) {
      status.Update(exchange.Submit(b));
    }
    status.Update(exchange.Finish(Soon()));
    EXPECT_EQ(exchange.step(), step + 1);
  }
  return status;
}

absl::Status Save(GradientExchange& exchange, LocalWorker& worker,
                  const std::string& directory) {
  const proto::JobSpec& spec = worker.client->spec();
  const Layout& layout = worker.model.layout;
  const auto slots = Optimizer::Create(spec.optimizer())->slot_names();
  const auto saved = SaveStateFiles(exchange, directory, layout, slots, Soon());
  if (!saved.ok()) return saved.status();
  EXPECT_EQ(
      *FetchedSlots(exchange, layout, static_cast<int>(slots.size()), Soon()),
      *SlotsInFiles(directory, layout, slots));
  return absl::OkStatus();
}

struct Trained {
  Finals finals{kWorkers};
  std::vector<int64_t> gradients_sent = std::vector<int64_t>(kWorkers);
  std::string checkpoint;
};

// What both ways end with.
absl::Status End(LocalWorker& worker, GradientExchange& exchange,
                 Trained* trained) {
  const absl::Status early =
      exchange.SaveState(testing::TestDirectory(".early"), Soon()).status();
  EXPECT_THAT(std::string(early.message()),
              HasSubstr("a checkpoint of step 7, between averagings"));
  absl::Status status = exchange.Synchronise(Before::kSaveState, Soon());
  if (!status.ok()) return status;
  trained->gradients_sent[worker.rank] = exchange.traffic().gradients_sent;
  if (worker.rank != 0) return absl::OkStatus();
  return Save(exchange, worker, trained->checkpoint);
}

Trained TrainOnHosts(const LocalJobOptions& options) {
  Trained trained;
  trained.checkpoint = testing::TestDirectory(".host");
  const auto body = [&](LocalWorker& worker) {
    FlatBuffer& parameters = worker.model.parameters;
    std::fill_n(parameters.data(), parameters.size(),
                static_cast<float>(worker.rank + 1));
    absl::Status status = Train(worker, *worker.exchange, [] {});
    if (status.ok()) status = End(worker, *worker.exchange, &trained);
    trained.finals[worker.rank] = Copy(parameters.data(), parameters.size());
    return status;
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  return trained;
}

Trained TrainOnGpus(LocalJobOptions options) {
  Trained trained;
  trained.checkpoint = testing::TestDirectory(".gpu");
  options.nccl_of = [](int) { return std::nullopt; };
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    FakeDevice device(worker.rank);
    const auto optimizer = Optimizer::Create(options.spec.optimizer());
    DeviceModel model = *DeviceModel::Create(device, worker.model.layout,
                                             optimizer->num_slots());
    const GpuModel gpu{device, model};
    auto exchange = worker.client->Connect(nullptr, nullptr, &gpu);
    if (!exchange.ok()) return exchange.status();
    device.Enqueue(kComputeStream, [&] {
      std::fill_n(model.parameters.data(), model.parameters.size(),
                  static_cast<float>(worker.rank + 1));
      return absl::OkStatus();
    });
    absl::Status status = Train(worker, **exchange, [&] {
      const Floats given =
          Copy(worker.model.gradients.data(), worker.model.gradients.size());
      device.Enqueue(kComputeStream, [&model, given] {
        std::copy(given.begin(), given.end(), model.gradients.data());
        return absl::OkStatus();
      });
    });
    if (status.ok()) status = End(worker, **exchange, &trained);
    device.AwaitIdle();
    trained.finals[worker.rank] =
        Copy(model.parameters.data(), model.parameters.size());
    return status;
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  return trained;
}

class DeviceStepsTest
    : public ::testing::TestWithParam<std::tuple<proto::Mode, const char*>> {};

TEST_P(DeviceStepsTest, EndWithTheBitsAndTheCheckpointOfHosts) {
  const auto& [mode, optimizer] = GetParam();
  const LocalJobOptions job = JobOf(mode, optimizer);
  const Trained hosts = TrainOnHosts(job);
  const Trained gpus = TrainOnGpus(job);
  EXPECT_NE(hosts.finals[0][0], 1.0f);
  EXPECT_EQ(gpus.finals, hosts.finals);
  int files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(hosts.checkpoint)) {
    const std::string name = file.path().filename();
    EXPECT_EQ(testing::ReadFile(gpus.checkpoint + "/" + name),
              testing::ReadFile(hosts.checkpoint + "/" + name))
        << name;
    ++files;
  }
  EXPECT_GT(files, 1);  // parameters and state
}

INSTANTIATE_TEST_SUITE_P(
    All, DeviceStepsTest,
    ::testing::Combine(::testing::Values(proto::RING, proto::PARAMETER_SERVER),
                       ::testing::Values("momentum", "adam")),
    [](const auto& info) {
      return std::string(std::get<0>(info.param) == proto::RING ? "ring"
                                                                : "ps") +
             "_" + std::get<1>(info.param);
    });

TEST(DeviceSteps, OnlyWhatIsAveragedLeavesTheGpu) {
  LocalJobOptions job = JobOf(proto::PARAMETER_SERVER, "momentum");
  job.same_host = SameHost::kOff;
  const Trained gpus = TrainOnGpus(job);
  const auto elements = static_cast<int64_t>(gpus.finals[0].size());
  for (const int64_t sent : gpus.gradients_sent) {
    EXPECT_EQ(sent, 3 * elements * 4);  // of 7 steps
  }
}

}  // namespace
}  // namespace psring
