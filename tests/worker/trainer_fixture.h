// The only worker of a job, with a model, data and an exchange for tests.
#ifndef PSRING_TESTS_WORKER_TRAINER_FIXTURE_H_
#define PSRING_TESTS_WORKER_TRAINER_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/time/time.h"
#include "tests/testing/fake_device.h"
#include "tests/testing/local_job.h"
#include "tests/worker/tiny_training.h"
#include "worker/trainer.h"

namespace psring {

inline constexpr int kBuckets = 4;  // a parameter each

// Has eight samples: four steps make an epoch.
class TrainerTest : public ::testing::Test {
 protected:
  TrainerTest()
      : flat_(*FlatModel::Create(*Layout::Create(ShapesOf(model_), 1))) {
    options_.plan.steps_per_epoch = 4;
    options_.plan.total_steps = 4;
    options_.plan.optimizer.set_name("sgd");
    options_.batch_size = 2;
  }

  // From options_.progress.step on.
  absl::Status Train() {
    exchange_.set_step(options_.progress.step);
    LocalJobOptions job;
    job.spec = SmallSpec(proto::RING, proto::BSP);
    const auto results = RunLocalJob(job, [&](LocalWorker& worker) {
      MetricsFile metrics = *MetricsFile::Create(
          metrics_dir_, worker.member->job().workers(0), {});
      Trainer trainer({model_, data_, flat_, MemoryOf(flat_), exchange_,
                       *worker.member, metrics, worker.cancellation, nullptr,
                       device_, kComputeStream, &gpu_track_},
                      options_);
      status_ = trainer.Run();
      end_ = trainer.step();
      times_ = trainer.step_times();
      training_time_ = trainer.training_time();
      figures_ = worker.member->figures().Take(ClockOffset{});
      return absl::OkStatus();
    });
    EXPECT_THAT(results, ::testing::Each(absl::OkStatus()));
    return status_;
  }

  TinyModel model_;
  DatasetPair data_ = {Numbers(8), Numbers(3)};
  FlatModel flat_;
  FakeExchange exchange_{flat_, 0};
  TrainerOptions options_;
  FakeDevice* device_ = nullptr;
  Track gpu_track_{"GPU"};
  std::string metrics_dir_;  // empty: none are written
  int64_t end_ = -1;         // the trainer's step, after it ran
  StepTimes times_;          // the trainer's, too
  absl::Duration training_time_;
  proto::Figures figures_;  // what no heartbeat has told

 private:
  absl::Status status_;
};

}  // namespace psring

#endif  // PSRING_TESTS_WORKER_TRAINER_FIXTURE_H_
