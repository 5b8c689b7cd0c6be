// What gpu-check holds against a GPU, tried on ones of host memory.
#include "lab/bench/gpu_check.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "gpu/device_model.h"
#include "ring/nccl/nccl_exchange.h"
#include "tests/testing/nccl_job.h"
#include "tests/testing/soon.h"
#include "worker/batch_loader.h"
#include "worker/data/load_dataset.h"
#include "worker/flat_parameters.h"
#include "worker/models/model.h"
#include "worker/sampler.h"
#include "worker/torch/tensors.h"

namespace psring {
namespace {

const GpuCheckOptions kDefaults;

proto::JobSpec SpecOf(const Classifier& model) {
  proto::JobSpec spec;
  for (const proto::TensorShape& shape : ShapesOf(model)) {
    *spec.add_tensors() = shape;
  }
  spec.set_mode(proto::RING);
  spec.set_bucket_bytes(1 << 22);  // all in one: an update for each step
  spec.mutable_optimizer()->set_name("sgd");
  spec.mutable_optimizer()->set_lr(kGpuCheckRate);
  spec.mutable_optimizer()->mutable_schedule()->set_kind("constant");
  spec.set_batch_size(kGpuCheckBatch);
  return spec;
}

at::Tensor LossOf(Classifier& model, BatchLoader& loader,
                  std::vector<int64_t> indices) {
  const Batch batch = *loader.Load({std::move(indices)});
  return MeanNllLoss(model.Forward(batch.images), batch.labels);
}

// The loss on the test data after gpu-check's training, of a model that lies on
// a GPU which loses every `drop`th update; 0: none.
double TrainedLoss(int drop) {
  const DatasetPair data = *LoadDataset(kDefaults.data);
  const auto model = *CreateModel(kDefaults.model, data.train.shape, 0);
  NcclJob job(1, SpecOf(*model));
  NcclRank& rank = job.rank(0);
  const proto::JobSpec& spec = rank.job.spec();
  DeviceModel on_gpu = *DeviceModel::Create(
      rank.device,
      *Layout::Create({spec.tensors().begin(), spec.tensors().end()},
                      spec.bucket_bytes()),
      0);
  auto exchange = *NcclExchange::Create(
      job.nccl().ApiOf(rank.device), rank.device, rank.cancellation, on_gpu,
      rank.job, rank.options, absl::Seconds(60));
  FlatParameters flat(
      *model, on_gpu.layout,
      {at::kCPU, on_gpu.parameters.data(), on_gpu.gradients.data()},
      [&](int bucket) { EXPECT_TRUE(exchange->Submit(bucket).ok()); });
  EXPECT_TRUE(exchange->Join({}, Soon()).ok());
  if (drop > 0) rank.device.DropUpdates(drop);
  BatchLoader train(data.train, {});
  for (int step = 0; step < kGpuCheckSteps;) {
    const int64_t per_epoch = data.train.size() / kGpuCheckBatch;
    const std::vector<int64_t> all =
        Indices({.dataset_size = data.train.size()}, step / per_epoch);
    for (int64_t i = 0; i < per_epoch && step < kGpuCheckSteps; ++i, ++step) {
      const auto begin = all.begin() + i * kGpuCheckBatch;
      LossOf(*model, train, {begin, begin + kGpuCheckBatch}).backward();
      flat.FinishBackward();
      EXPECT_TRUE(exchange->Finish(Soon()).ok());
      rank.device.AwaitIdle();
    }
  }
  BatchLoader test(data.test, {});
  return LossOf(*model, test, EvaluationIndices(data.test.size(), 1, 0))
      .item<double>();
}

TEST(GpuCheckTraining, NoticesALostUpdate) {
  const double wanted = TrainedLoss(0);
  EXPECT_LT(wanted, 1.5);  // it learns
  EXPECT_TRUE(LossesAgree(kDefaults.model, TrainedLoss(0), wanted));
  // All; every other; one in 10; only the last, which matters least.
  for (const int drop : {1, 2, 10, kGpuCheckSteps}) {
    EXPECT_FALSE(LossesAgree(kDefaults.model, TrainedLoss(drop), wanted))
        << "every " << drop;
  }
}

TEST(LossesAgree, IsLooseOnlyWhereDropoutMakesTheChancesOthers) {
  EXPECT_TRUE(LossesAgree("mlp:784-256-10", 1.0005, 1.0));
  EXPECT_FALSE(LossesAgree("mlp:784-256-10", 1.002, 1.0));
  EXPECT_TRUE(LossesAgree("lenet", 1.09, 1.0));
  EXPECT_FALSE(LossesAgree("lenet", 1.11, 1.0));
  EXPECT_FALSE(LossesAgree("lenet:dropout=0", 1.01, 1.0));
  EXPECT_FALSE(LossesAgree("lenet", std::nan(""), 1.0));
}

TEST(MostRanks, LeavesAGpuThatTakesOneProcessToOne) {
  DeviceInfo shared;
  DeviceInfo alone;
  alone.takes_one_process = true;
  EXPECT_EQ(MostRanks({shared}), 2);
  EXPECT_EQ(MostRanks({alone}), 1);
  EXPECT_EQ(MostRanks({alone, alone}), 2);
  EXPECT_EQ(MostRanks({shared, shared, shared}), 3);
}

}  // namespace
}  // namespace psring
