// Workers that nothing keeps together, before they evaluate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/model/flat_model.h"
#include "common/trace/metrics_file.h"
#include "tests/testing/local_job.h"
#include "tests/testing/soon.h"
#include "tests/worker/tiny_training.h"
#include "worker/trainer.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr absl::Duration kSlowStep = absl::Milliseconds(1100);
constexpr int kSteps = 4;

// The accuracy that counts needs the gradients of all: so does its time.
TEST(TrainerCatchUp, WaitsForAsLongAsOthersStepAndCountsItAsTraining) {
  std::vector<absl::Duration> times(2), exposed(2);
  LocalJobOptions job;
  job.spec = SmallSpec(proto::PARAMETER_SERVER, proto::ASYNC);
  job.num_workers = 2;
  const auto results = RunLocalJob(job, [&](LocalWorker& worker) {
    TinyModel model;
    const DatasetPair data = {Numbers(16), Numbers(3)};
    FlatModel flat =
        *FlatModel::Create(*Layout::Create(ShapesOf(model), 1 << 20));
    FakeExchange exchange(flat, 0);
    if (worker.rank == 1) {
      exchange.on_finish = [] { absl::SleepFor(kSlowStep); };
    }
    MetricsFile metrics =
        *MetricsFile::Create("", worker.member->job().workers(worker.rank), {});
    TrainerOptions options;
    options.plan.steps_per_epoch = kSteps;
    options.plan.total_steps = kSteps;
    options.plan.optimizer.set_name("sgd");
    options.batch_size = 2;
    // Two of them are less than worker 1 needs.
    options.step_timeout = absl::Seconds(2);
    options.catches_up = true;
    Trainer trainer({model, data, flat, MemoryOf(flat), exchange,
                     *worker.member, metrics, worker.cancellation},
                    options);
    const absl::Status status = trainer.Run();
    times[worker.rank] = trainer.training_time();
    exposed[worker.rank] = trainer.step_times().exposed;
    return status;
  });
  EXPECT_THAT(results, ::testing::Each(absl::OkStatus()));
  EXPECT_GE(times[0], kSteps * kSlowStep);
  EXPECT_GE(exposed[0], (kSteps - 1) * kSlowStep);
  EXPECT_LT(exposed[0], times[0]);
}

TEST(TrainerCatchUp, NamesTheWorkerWhoseStepIsNoNumber) {
  LocalJobOptions job;
  job.spec = SmallSpec(proto::RING, proto::BSP);
  job.num_workers = 2;
  const auto results = RunLocalJob(job, [&](LocalWorker& worker) {
    if (worker.rank == 1) {
      EXPECT_TRUE(worker.member->Gather("saves", "", Soon()).ok());
      return worker.member->Gather("catch up", "evil\x1b", Soon()).status();
    }
    TinyModel model;
    const DatasetPair data = {Numbers(4), Numbers(3)};
    FlatModel flat = *FlatModel::Create(*Layout::Create(ShapesOf(model), 1));
    FakeExchange exchange(flat, 0);
    MetricsFile metrics =
        *MetricsFile::Create("", worker.member->job().workers(0), {});
    TrainerOptions options;
    options.plan.steps_per_epoch = 1;
    options.plan.total_steps = 1;
    options.plan.optimizer.set_name("sgd");
    options.batch_size = 2;
    options.catches_up = true;
    Trainer trainer({model, data, flat, MemoryOf(flat), exchange,
                     *worker.member, metrics, worker.cancellation},
                    options);
    const absl::Status status = trainer.Run();
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("worker 1 (host "),
                      HasSubstr("is at step 'evil\\x1b', which is no number")));
    return status;
  });
}

}  // namespace
}  // namespace psring
