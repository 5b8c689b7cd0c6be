// Runs of several workers that go on with another number of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/trace/metrics_reader.h"
#include "tests/testing/local_job.h"
#include "tests/testing/test_directory.h"
#include "tests/worker/tiny_training.h"
#include "worker/trainer.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using ::testing::Each;
using ::testing::SizeIs;

constexpr int kSamples = 23;

// How often each sample was trained on, by all workers together.
using Counts = std::map<int, int>;

proto::JobSpec Spec(int64_t epochs) {
  proto::JobSpec spec;
  spec.set_dataset_size(kSamples);
  spec.set_batch_size(2);
  spec.set_epochs(epochs);
  spec.mutable_optimizer()->set_name("sgd");
  return spec;
}

// Makes the steps of `plan`, each worker with an exchange that only
// counts.
Counts Train(const JobPlan& plan, int num_workers, int64_t batch_size,
             const std::string& metrics_dir = "") {
  std::vector<TinyModel> models(num_workers);
  const DatasetPair data = {Numbers(kSamples), Numbers(3)};
  LocalJobOptions job;
  job.spec = SmallSpec(proto::RING, proto::BSP);
  job.num_workers = num_workers;
  const auto results = RunLocalJob(job, [&](LocalWorker& worker) {
    TinyModel& model = models[worker.rank];
    FlatModel flat = *FlatModel::Create(*Layout::Create(ShapesOf(model), 1));
    FakeExchange exchange(flat, plan.first_step);
    const proto::Process& process = worker.member->job().workers(worker.rank);
    MetricsFile metrics = *MetricsFile::Create(metrics_dir, process, {});
    TrainerOptions options;
    options.plan = plan;
    options.progress.step = plan.first_step;
    options.batch_size = batch_size;
    Trainer trainer({model, data, flat, MemoryOf(flat), exchange,
                     *worker.member, metrics, worker.cancellation},
                    options);
    return trainer.Run();
  });
  EXPECT_THAT(results, Each(absl::OkStatus()));
  Counts counts;
  for (const TinyModel& model : models) {
    for (const int sample : model.trained_on) ++counts[sample];
  }
  return counts;
}

struct Change {
  int workers_before, workers_after;
  int64_t batch_after;
};

class TrainerResumeTest : public ::testing::TestWithParam<Change> {};

// Each sample once an epoch; those that pad an epoch's last round once more.
TEST_P(TrainerResumeTest, EverySampleIsSeenOnceAnEpoch) {
  const Change& change = GetParam();
  const int before = change.workers_before, after = change.workers_after;
  const int64_t whole = PlanOf(Spec(3), before).total_steps;
  for (int64_t stop = 1; stop < whole; stop += 3) {
    proto::JobSpec spec = Spec(3);
    spec.set_steps(stop);
    const JobPlan first = PlanOf(spec, before);
    Counts counts = Train(first, before, 2);
    proto::JobSpec rest = Spec(3);
    rest.set_batch_size(change.batch_after);
    rest.set_first_step(stop);
    *rest.mutable_first_cursor() = first.CursorAt(stop);
    const JobPlan plan = PlanOf(rest, after);
    for (const auto& [sample, count] : Train(plan, after, change.batch_after)) {
      counts[sample] += count;
    }
    ASSERT_THAT(counts, SizeIs(kSamples)) << stop;
    int total = 0;
    for (const auto& [sample, count] : counts) {
      EXPECT_GE(count, 3) << "sample " << sample << ", stopped at " << stop;
      total += count;
    }
    const int padding = 3 * (std::max(before, after) - 1);
    EXPECT_LE(total, 3 * kSamples + padding) << stop;
  }
}

INSTANTIATE_TEST_SUITE_P(All, TrainerResumeTest,
                         ::testing::Values(Change{4, 2, 2}, Change{2, 3, 2},
                                           Change{1, 4, 2}, Change{2, 2, 3},
                                           Change{3, 1, 5}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.workers_before, "To",
                                               info.param.workers_after, "Of",
                                               info.param.batch_after);
                         });

TEST(TrainerResumeMetricsTest, EpochsKeepTheirNumbers) {
  proto::JobSpec rest = Spec(3);
  rest.set_first_step(4);
  rest.mutable_first_cursor()->set_epoch(1);
  rest.mutable_first_cursor()->set_samples(8);
  const std::string folder = testing::TestDirectory();
  Train(PlanOf(rest, 2), 2, 2, folder);
  const auto metrics = ReadAllMetrics(folder);
  ASSERT_TRUE(metrics.ok()) << metrics.status();
  ASSERT_THAT(metrics->front().epochs, SizeIs(2));
  EXPECT_EQ(metrics->front().epochs[0].epoch, 2);
  EXPECT_EQ(metrics->front().epochs[0].step, 8);
  EXPECT_EQ(metrics->front().epochs[1].epoch, 3);
  EXPECT_EQ(metrics->front().epochs[1].step, 14);
}

// Where workers wait for nobody: without a stop one would be far ahead.
TEST(TrainerCheckpointTest, NobodyGoesOnBeforeACheckpointOfOneMomentIsThere) {
  const std::string folder = testing::TestDirectory();
  const std::string checkpoint = folder + "/step-00000004";
  proto::JobSpec spec = Spec(1);
  spec.set_steps(6);
  const JobPlan plan = PlanOf(spec, 2);
  const DatasetPair data = {Numbers(kSamples), Numbers(3)};
  std::vector<TinyModel> models(2);
  LocalJobOptions job;
  job.spec = SmallSpec(proto::RING, proto::BSP);
  job.num_workers = 2;
  const auto results = RunLocalJob(job, [&](LocalWorker& worker) {
    TinyModel& model = models[worker.rank];
    FlatModel flat = *FlatModel::Create(*Layout::Create(ShapesOf(model), 1));
    FakeExchange exchange(flat, 0);
    exchange.on_finish = [&] {
      if (exchange.step() > 4) {
        EXPECT_TRUE(fs::exists(checkpoint));
      }
    };
    MetricsFile metrics =
        *MetricsFile::Create("", worker.member->job().workers(worker.rank), {});
    TrainerOptions options;
    options.plan = plan;
    options.batch_size = 2;
    options.checkpoints.directory = folder;
    options.checkpoints.every = 4;
    Trainer trainer({model, data, flat, MemoryOf(flat), exchange,
                     *worker.member, metrics, worker.cancellation},
                    options);
    return trainer.Run();
  });
  EXPECT_THAT(results, Each(absl::OkStatus()));
}

}  // namespace
}  // namespace psring
