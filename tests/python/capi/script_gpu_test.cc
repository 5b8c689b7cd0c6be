// A script's model on a GPU whose memory nobody but its streams can touch,
// through real jobs: against the same model in the host's memory.
#include "python/capi/script_gpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "nlohmann/json.hpp"
#include "python/capi/script_model.h"
#include "tests/testing/fake_device.h"
#include "tests/testing/fake_nccl.h"
#include "tests/testing/local_job.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Floats = std::vector<float>;
using Json = nlohmann::json;

constexpr int kSteps = 4;
constexpr float kRate = 0.1f;

Json OptionsOf(const std::string& update) {
  Json tensors = Json::array();
  for (int elements : {1, 777, 16, 3001, 5, 64, 1234}) {
    tensors.push_back({{"name", "t" + std::to_string(tensors.size())},
                       {"shape", {elements}}});
  }
  const auto adam = [](double decay) {
    return Json{{"name", "adam"}, {"lr", 0.05}, {"weight_decay", decay}};
  };
  return {{"id", "script"},
          {"tensors", tensors},
          {"bucket_mb", 0.004},
          {"update", update},
          {"groups", {adam(0.01), adam(0.0)}},
          {"tensor_groups", {0, 1, 0, 0, 1, 1, 0}}};
}

// What a rank's data give in a step, element by element.
Floats DataGradients(int rank, int step, int64_t n) {
  Floats given(n);
  for (int64_t i = 0; i < n; ++i) {
    given[i] =
        static_cast<float>((i * 37 + step * 11 + rank * 5) % 101) * 0.01f;
  }
  return given;
}

// What a script computes, wherever its model lies: gradients of its weights,
// in two backward passes, and with update "local" its own steps.
struct Script {
  int rank = 0;
  bool fused = false;
  float* parameters = nullptr;  // as this process can reach them
  float* gradients = nullptr;
  Floats weights = {};  // update "local"

  void Start(int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const float value = static_cast<float>(i % 97) * 0.01f + 0.5f;
      if (fused) parameters[i] = rank == 0 ? value : -1.0f;
      weights.push_back(value);
    }
  }
  void Backward(const Floats& given, int pass) {
    const float* of = fused ? parameters : weights.data();
    for (size_t i = 0; i < given.size(); ++i) {
      const float gradient = given[i] + 0.01f * of[i];
      gradients[i] = pass == 0 ? gradient : gradients[i] + gradient;
    }
  }
  void Step() {
    for (size_t i = 0; !fused && i < weights.size(); ++i) {
      weights[i] -= kRate * parameters[i];
    }
  }
  Floats Weights(int64_t n) const {
    return fused ? Floats(parameters, parameters + n) : weights;
  }
};

absl::StatusOr<std::unique_ptr<ScriptModel>> OpenModel(
    LocalWorker& worker, proto::Mode mode, SameHost same_host,
    const Json& options, const GpuDoor& door = {},
    absl::Duration step_timeout = absl::Seconds(60)) {
  auto parsed = ParseModelOptions(options.dump(), mode);
  if (!parsed.ok()) return parsed.status();
  return ScriptModel::Open(*worker.job, *parsed, same_host, step_timeout, door);
}

absl::Status SubmitAll(ScriptModel& model) {
  const int num_buckets = model.Describe()["num_buckets"];
  for (int b = 0; b < num_buckets; ++b) {
    if (absl::Status s = model.Submit(b); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// One rank's GPU, and a script that works on it, in two streams by turns.
class GpuScript {
 public:
  GpuScript(int rank, FakeNccl* nccl, int gpu) : nccl_(nccl) {
    script_.rank = rank;
    door_.open = [this, gpu](int) -> absl::StatusOr<std::unique_ptr<Device>> {
      auto device = std::make_unique<FakeDevice>(gpu, int64_t{1} << 32,
                                                 FakeMemory::kGuarded);
      device_ = device.get();
      return device;
    };
    door_.load_nccl = [this]() -> absl::StatusOr<NcclApi> {
      if (nccl_ == nullptr) return absl::NotFoundError("no NCCL here");
      return nccl_->ApiOf(*device_);
    };
  }

  absl::Status Open(LocalWorker& worker, proto::Mode mode, SameHost same_host,
                    Json options,
                    absl::Duration step_timeout = absl::Seconds(60)) {
    options["device"] = "cuda:0";
    auto model =
        OpenModel(worker, mode, same_host, options, door_, step_timeout);
    if (!model.ok()) return model.status();
    model_ = *std::move(model);
    script_.fused = options["update"] == "fused";
    script_.parameters = device_->Reach(model_->parameters());
    script_.gradients = device_->Reach(model_->gradients());
    n_ = model_->Describe()["num_elements"];
    for (Stream& stream : streams_) stream = *device_->CreateStream();
    return absl::OkStatus();
  }

  GpuDoor& door() { return door_; }
  ScriptModel& model() { return *model_; }
  FakeDevice& device() { return *device_; }
  Script& script() { return script_; }
  Stream stream() const { return streams_[current_]; }
  int64_t num_elements() const { return n_; }

  void Enqueue(std::function<void()> work) {
    device_->Enqueue(stream(), [work = std::move(work)] {
      work();
      return absl::OkStatus();
    });
  }

  // To the other stream, behind what is in this one.
  absl::Status SwitchStream() {
    const Event event = *device_->CreateEvent();
    absl::Status status = device_->Record(event, stream());
    current_ = 1 - current_;
    status.Update(device_->WaitFor(stream(), event));
    status.Update(model_->SetStream(stream()));
    return status;
  }

  absl::Status Start() {
    if (absl::Status s = model_->SetStream(stream()); !s.ok()) return s;
    device_->Stall(stream());
    Enqueue([this] { script_.Start(n_); });
    device_->Release();
    return model_->Begin(*model_->CopySlots({}));
  }

  void Backward(int step) {
    const Floats given = DataGradients(script_.rank, step, n_);
    for (int pass = 0; pass < 2; ++pass) {
      Enqueue([this, given, pass] { script_.Backward(given, pass); });
    }
  }

  // `stalled`: backward has not begun when Finish returns, which may be then.
  absl::Status Step(int step, bool stalled) {
    if (absl::Status s = SwitchStream(); !s.ok()) return s;
    if (stalled) device_->Stall(stream());
    Backward(step);
    if (absl::Status s = SubmitAll(*model_); !s.ok()) return s;
    absl::Status status = model_->Finish();
    device_->Release();
    Enqueue([this] { script_.Step(); });
    return status;
  }

  // An event behind all that is in the stream.
  Event Mark() {
    const Event event = *device_->CreateEvent();
    EXPECT_TRUE(device_->Record(event, stream()).ok());
    return event;
  }

  absl::StatusOr<Floats> End() {
    if (absl::Status s = Await(*device_, Mark(), Soon(), Cancellation());
        !s.ok()) {
      return s;
    }
    const Floats weights = script_.Weights(n_);
    if (absl::Status s = model_->Close(); !s.ok()) return s;
    model_.reset();
    return weights;
  }

 private:
  FakeNccl* const nccl_;
  GpuDoor door_;
  Script script_;                 // outlives the device, which works on it
  FakeDevice* device_ = nullptr;  // the model's
  std::unique_ptr<ScriptModel> model_;
  int64_t n_ = 0;
  Stream streams_[2];
  int current_ = 0;
};

absl::StatusOr<Floats> TrainOnHost(LocalWorker& worker, proto::Mode mode,
                                   const std::string& update) {
  auto opened = OpenModel(worker, mode, SameHost::kAuto, OptionsOf(update));
  if (!opened.ok()) return opened.status();
  ScriptModel& model = **opened;
  const int64_t n = model.Describe()["num_elements"];
  Script script = {worker.rank, update == "fused", model.parameters(),
                   model.gradients()};
  script.Start(n);
  absl::Status begun = model.Begin(*model.CopySlots({}));
  if (!begun.ok()) return begun;
  for (int step = 0; step < kSteps; ++step) {
    for (int pass = 0; pass < 2; ++pass) {
      script.Backward(DataGradients(worker.rank, step, n), pass);
    }
    if (absl::Status s = SubmitAll(model); !s.ok()) return s;
    if (absl::Status s = model.Finish(); !s.ok()) return s;
    script.Step();
  }
  const Floats weights = script.Weights(n);
  if (absl::Status s = model.Close(); !s.ok()) return s;
  return weights;
}

using Body = std::function<absl::Status(LocalWorker&)>;

std::vector<absl::Status> ResultsOf(proto::Mode mode, int num_workers,
                                    const Body& body) {
  LocalJobOptions options;
  options.spec = SmallSpec(mode, proto::BSP);
  options.num_workers = num_workers;
  options.num_servers = mode == proto::RING ? 0 : 2;
  return RunLocalJob(options, body);
}

void RunJob(proto::Mode mode, int num_workers, const Body& body) {
  for (const absl::Status& s : ResultsOf(mode, num_workers, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

// How gradients travel: mode, arena or messages, NCCL or the hosts.
struct Way {
  const char* name;
  proto::Mode mode;
  SameHost same_host;
  bool nccl;
};

class ScriptOnGpu
    : public ::testing::TestWithParam<std::tuple<Way, const char*, int>> {};

TEST_P(ScriptOnGpu, EndsWithTheBitsOfTheHost) {
  const auto& [way, update, n] = GetParam();
  std::vector<Floats> host(n), gpu(n);
  RunJob(way.mode, n, [&](LocalWorker& worker) {
    auto weights = TrainOnHost(worker, way.mode, update);
    if (!weights.ok()) return weights.status();
    host[worker.rank] = *weights;
    return absl::OkStatus();
  });
  FakeNccl nccl;
  RunJob(way.mode, n, [&](LocalWorker& worker) -> absl::Status {
    GpuScript script(worker.rank, way.nccl ? &nccl : nullptr, worker.rank);
    absl::Status status =
        script.Open(worker, way.mode, way.same_host, OptionsOf(update));
    if (status.ok()) status = script.Start();
    for (int step = 0; status.ok() && step < kSteps; ++step) {
      // NCCL waits for nothing once ranks have agreed in the first step; a
      // push waits for the sum.
      status = script.Step(
          step, /*stalled=*/way.nccl && way.mode == proto::RING && step > 0);
    }
    if (!status.ok()) return status;
    auto weights = script.End();
    if (!weights.ok()) return weights.status();
    gpu[worker.rank] = *weights;
    return absl::OkStatus();
  });
  for (int r = 0; r < n; ++r) {
    ASSERT_FALSE(host[r].empty());
    EXPECT_EQ(gpu[r], host[0]) << "rank " << r;
  }
  // A host's only GPU has nobody to sum with before it pushes.
  EXPECT_EQ(nccl.num_launched() > 0,
            way.nccl && (way.mode == proto::RING || n > 1));
}

INSTANTIATE_TEST_SUITE_P(
    All, ScriptOnGpu,
    ::testing::Combine(
        ::testing::Values(
            Way{"PsArena", proto::PARAMETER_SERVER, SameHost::kAuto, false},
            Way{"PsMessages", proto::PARAMETER_SERVER, SameHost::kOff, false},
            Way{"PsNccl", proto::PARAMETER_SERVER, SameHost::kAuto, true},
            Way{"RingArena", proto::RING, SameHost::kAuto, false},
            Way{"RingMessages", proto::RING, SameHost::kOff, false},
            Way{"RingNccl", proto::RING, SameHost::kAuto, true}),
        ::testing::Values("local", "fused"), ::testing::Values(1, 3)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param).name) + "_" +
             std::get<1>(info.param) + "_" +
             std::to_string(std::get<2>(info.param));
    });

TEST(ScriptGpu, AStagedStepWaitsForTheCallersStream) {
  absl::Status finished;
  RunJob(proto::PARAMETER_SERVER, 1, [&](LocalWorker& worker) {
    GpuScript script(0, nullptr, 0);
    absl::Status status =
        script.Open(worker, proto::PARAMETER_SERVER, SameHost::kAuto,
                    OptionsOf("local"), absl::Seconds(2));
    if (status.ok()) status = script.Start();
    if (!status.ok()) return status;
    script.device().Stall(script.stream());
    script.Backward(0);
    EXPECT_TRUE(SubmitAll(script.model()).ok());
    finished = script.model().Finish();
    script.device().Release();
    script.model().Disconnect();
    return absl::OkStatus();
  });
  EXPECT_EQ(finished.code(), absl::StatusCode::kDeadlineExceeded) << finished;
  EXPECT_THAT(std::string(finished.message()),
              AllOf(HasSubstr("bucket 0"), HasSubstr("GPU 0")));
}

TEST(ScriptGpu, TheCallersStreamWaitsForAStepByNccl) {
  FakeNccl nccl;
  std::barrier both(2);
  RunJob(proto::RING, 2, [&](LocalWorker& worker) -> absl::Status {
    GpuScript script(worker.rank, &nccl, worker.rank);
    absl::Status status =
        script.Open(worker, proto::RING, SameHost::kAuto, OptionsOf("local"));
    if (status.ok()) status = script.Start();
    if (status.ok()) status = script.Step(0, false);
    if (!status.ok()) return status;
    if (worker.rank == 1) both.arrive_and_wait();
    script.Backward(1);
    EXPECT_TRUE(SubmitAll(script.model()).ok());
    const Event submitted = script.Mark();
    EXPECT_TRUE(script.model().Finish().ok());
    const Event finished = script.Mark();
    EXPECT_TRUE(Await(script.device(), submitted, Soon(), {}).ok());
    if (worker.rank == 0) {  // nothing of rank 1 has come
      EXPECT_FALSE(*script.device().IsDone(finished));
      both.arrive_and_wait();
    }
    EXPECT_TRUE(Await(script.device(), finished, Soon(), {}).ok());
    return script.End().status();
  });
}

// Its default ends the process.
TEST(ScriptGpu, AScriptIsEndedBeforeItUsesWhatNcclHasNotSummed) {
  FakeNccl nccl;
  std::atomic<int> calls = 0;
  std::barrier both(2);
  ResultsOf(proto::RING, 2, [&](LocalWorker& worker) -> absl::Status {
    GpuScript script(worker.rank, &nccl, worker.rank);
    script.door().before_abort = [&](const absl::Status& why) {
      EXPECT_THAT(std::string(why.message()), HasSubstr("lost worker 1"));
      EXPECT_EQ(nccl.num_aborts(), 0);
      ++calls;
    };
    absl::Status status =
        script.Open(worker, proto::RING, SameHost::kAuto, OptionsOf("local"));
    if (status.ok()) status = script.Start();
    if (status.ok()) status = script.Step(0, false);
    if (!status.ok()) return status;
    EXPECT_TRUE(Await(script.device(), script.Mark(), Soon(), {}).ok());
    both.arrive_and_wait();  // rank 1 does not wait for rank 0 any more
    if (worker.rank == 0) {
      script.Backward(1);
      EXPECT_TRUE(SubmitAll(script.model()).ok());
      EXPECT_TRUE(script.model().Finish().ok());
      worker.cancellation.Cancel(absl::UnavailableError("lost worker 1"));
      const Time deadline = Soon();
      while (nccl.num_aborts() == 0 && Now() < deadline) {
        absl::SleepFor(absl::Milliseconds(1));
      }
    }
    script.model().Disconnect();
    return absl::OkStatus();
  });
  EXPECT_EQ(calls, 1);
}

TEST(ScriptGpuDeathTest, AnAbortEndsAScript) {
  EXPECT_EXIT(ExitBeforeAbort(absl::AbortedError("lost worker 7")),
              ::testing::ExitedWithCode(1), "");
}

TEST(ScriptGpu, AnAbortLeavesAScriptThatHasGivenUpItsOwnExitCode) {
  SetGivenUp(true);
  ExitBeforeAbort(absl::AbortedError("lost worker 7"));
  SetGivenUp(false);
}

std::vector<std::string> BackendsOf(
    const std::string& wish, const std::function<FakeNccl*(int rank)>& nccl_of,
    const std::function<int(int rank)>& gpu_of) {
  std::vector<std::string> backends(2);
  RunJob(proto::RING, 2, [&](LocalWorker& worker) -> absl::Status {
    Json options = OptionsOf("fused");
    options["ring_backend"] = wish;
    GpuScript script(worker.rank, nccl_of(worker.rank), gpu_of(worker.rank));
    absl::Status status =
        script.Open(worker, proto::RING, SameHost::kAuto, options);
    if (status.ok()) status = script.Start();
    if (!status.ok()) return status;
    backends[worker.rank] = script.model().Describe()["ring_backend"];
    return script.End().status();
  });
  return backends;
}

int OwnGpu(int rank) { return rank; }

TEST(ScriptGpu, NcclSumsWhereEveryRankHasIt) {
  FakeNccl nccl;
  const auto all = [&](int) { return &nccl; };
  const auto first = [&](int rank) { return rank == 0 ? &nccl : nullptr; };
  using Backends = std::vector<std::string>;
  EXPECT_EQ(BackendsOf("auto", all, OwnGpu), Backends({"nccl", "nccl"}));
  EXPECT_EQ(BackendsOf("host", all, OwnGpu), Backends({"host", "host"}));
  EXPECT_EQ(BackendsOf("auto", first, OwnGpu), Backends({"host", "host"}));
}

TEST(ScriptGpu, RanksOnOneGpuSumOnTheHosts) {
  FakeNccl nccl;
  const auto backends = BackendsOf(
      "auto", [&](int) { return &nccl; }, [](int) { return 0; });
  EXPECT_EQ(backends, std::vector<std::string>({"host", "host"}));
}

// How many collectives NCCL has been given by two ranks in mode ps.
int LaunchedInPs(const std::string& wish, int gpu_of_rank_1) {
  FakeNccl nccl;
  RunJob(proto::PARAMETER_SERVER, 2, [&](LocalWorker& worker) -> absl::Status {
    Json options = OptionsOf("local");
    options["ring_backend"] = wish;
    GpuScript script(worker.rank, &nccl, worker.rank == 0 ? 0 : gpu_of_rank_1);
    absl::Status status =
        script.Open(worker, proto::PARAMETER_SERVER, SameHost::kAuto, options);
    if (status.ok()) status = script.Start();
    if (status.ok()) status = script.Step(0, /*stalled=*/false);
    return status.ok() ? script.End().status() : status;
  });
  return nccl.num_launched();
}

TEST(ScriptGpu, BeforeServersNcclSumsWhereRanksHaveGpusOfTheirOwn) {
  EXPECT_GT(LaunchedInPs("auto", 1), 0);
  EXPECT_EQ(LaunchedInPs("auto", 0), 0);
  EXPECT_EQ(LaunchedInPs("host", 1), 0);
}

TEST(ScriptGpu, NcclThatWasAskedForCannotCompress) {
  FakeNccl nccl;
  RunJob(proto::RING, 1, [&](LocalWorker& worker) -> absl::Status {
    Json options = OptionsOf("local");
    options["ring_backend"] = "nccl";
    options["compress"] = "int8";
    GpuScript script(0, &nccl, 0);
    const absl::Status status =
        script.Open(worker, proto::RING, SameHost::kAuto, options);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("compress=int8"), HasSubstr("NCCL")));
    return absl::OkStatus();
  });
}

TEST(ScriptGpu, AStreamIsForAModelOnAGpu) {
  RunJob(proto::RING, 1, [&](LocalWorker& worker) -> absl::Status {
    auto model =
        OpenModel(worker, proto::RING, SameHost::kAuto, OptionsOf("local"));
    if (!model.ok()) return model.status();
    const absl::Status status = (*model)->SetStream({});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("'script'"));
    if (absl::Status s = (*model)->Begin({}); !s.ok()) return s;
    return (*model)->Close();
  });
}

TEST(ParseScriptDevice, TakesTheHostOrANumberedGpu) {
  EXPECT_EQ(*ParseScriptDevice("cpu"), -1);
  EXPECT_EQ(*ParseScriptDevice("cuda:3"), 3);
  for (const char* text : {"", "cuda", "cuda:", "cuda:-1", "cuda:x", "mps:0"}) {
    EXPECT_THAT(std::string(ParseScriptDevice(text).status().message()),
                HasSubstr("cuda:INDEX"))
        << text;
  }
}

}  // namespace
}  // namespace psring
