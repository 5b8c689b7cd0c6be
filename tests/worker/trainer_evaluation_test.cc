// Evaluations of several workers: slow ones, and ones that SIGTERM ends.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/cluster/stop_agreement.h"
#include "common/trace/metrics_reader.h"
#include "tests/testing/local_job.h"
#include "tests/testing/test_directory.h"
#include "tests/worker/tiny_training.h"
#include "worker/trainer.h"

namespace psring {
namespace {

using ::testing::Each;
using ::testing::SizeIs;

constexpr int kWorkers = 2;  // each evaluates three batches

struct Training {
  std::vector<absl::Status> results;
  std::vector<int64_t> steps = std::vector<int64_t>(
      kWorkers);           // of each worker, when its training ended
  size_t evaluations = 0;  // that were told
};

// Trains up to 8 steps, 4 an epoch; `evaluates` is called as each worker takes
// a batch of test samples.
Training Train(const std::function<void(int rank, StopAgreement&)>& evaluates) {
  std::vector<TinyModel> models(kWorkers);
  const DatasetPair data = {Numbers(16), Numbers(kWorkers * 600)};
  const std::string metrics_dir = testing::TestDirectory();
  LocalJobOptions job;
  job.spec = SmallSpec(proto::RING, proto::BSP);
  job.num_workers = kWorkers;
  Training run;
  run.results = RunLocalJob(job, [&](LocalWorker& worker) {
    TinyModel& model = models[worker.rank];
    FlatModel flat = *FlatModel::Create(*Layout::Create(ShapesOf(model), 1));
    FakeExchange exchange(flat, 0);
    StopAgreement stop(*worker.member, 0, 1);
    model.on_evaluation = [&] { evaluates(worker.rank, stop); };
    MetricsFile metrics = *MetricsFile::Create(
        metrics_dir, worker.member->job().workers(worker.rank), {});
    TrainerOptions options;
    options.plan.steps_per_epoch = 4;
    options.plan.total_steps = 8;
    options.plan.optimizer.set_name("sgd");
    options.batch_size = 2;
    options.step_timeout = absl::Seconds(1.4);
    TrainerParts parts{model,    data,           flat,    MemoryOf(flat),
                       exchange, *worker.member, metrics, worker.cancellation};
    parts.stop = &stop;
    Trainer trainer(parts, options);
    const absl::Status status = trainer.Run();
    run.steps[worker.rank] = trainer.step();
    return status;
  });
  const auto metrics = ReadAllMetrics(metrics_dir);
  EXPECT_TRUE(metrics.ok()) << metrics.status();
  for (const auto& worker : *metrics) {
    run.evaluations += worker.epochs.size();
  }
  return run;
}

// Whose wait has twice the step timeout has given up by then.
TEST(TrainerEvaluation, OthersWaitForAWorkerAsLongAsItEvaluates) {
  const Training run = Train([](int rank, StopAgreement&) {
    if (rank == 1) absl::SleepFor(absl::Seconds(1));
  });
  EXPECT_THAT(run.results, Each(absl::OkStatus()));
  EXPECT_EQ(run.evaluations, 2u);
}

// An evaluation may take longer than a host is left.
TEST(TrainerEvaluation, SigtermEndsItAndTheTrainingAfterTheNextStep) {
  const Training run = Train([](int rank, StopAgreement& stop) {
    if (rank == 0) stop.Wish();
    while (!stop.wished()) absl::SleepFor(absl::Milliseconds(10));
  });
  EXPECT_THAT(run.results, Each(absl::OkStatus()));
  EXPECT_THAT(run.steps, Each(5));
  EXPECT_EQ(run.evaluations, 0u);
}

}  // namespace
}  // namespace psring
