#include "worker/models/sync_batch_norm.h"

#include <ATen/ops/allclose.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "common/mutex.h"
#include "worker/models/layers.h"

namespace psring {
namespace {

constexpr double kMomentum = 0.1;
constexpr double kEpsilon = 1e-5;
constexpr int64_t kChannels = 5;

// Workers that are threads, which meet in Gather.
class Meeting {
 public:
  explicit Meeting(int size) : parts_(size) {}

  std::vector<float> Meet(int rank, absl::Span<const float> mine) {
    MutexLock lock(&mutex_);
    const int round = round_;
    parts_[rank].assign(mine.begin(), mine.end());
    if (++num_come_ == static_cast<int>(parts_.size())) {
      all_.clear();
      for (const std::vector<float>& part : parts_) {
        all_.insert(all_.end(), part.begin(), part.end());
      }
      num_come_ = 0;
      ++round_;
    } else {
      const auto is_over = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return round_ != round;
      };
      mutex_.Await(is_over);
    }
    return all_;
  }

  int rounds() {
    MutexLock lock(&mutex_);
    return round_;
  }

 private:
  Mutex mutex_;
  std::vector<std::vector<float>> parts_ ABSL_GUARDED_BY(mutex_);
  std::vector<float> all_ ABSL_GUARDED_BY(mutex_);
  int num_come_ ABSL_GUARDED_BY(mutex_) = 0;
  int round_ ABSL_GUARDED_BY(mutex_) = 0;
};

class Member : public GatherStatistics {
 public:
  Member(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  std::vector<float> Gather(absl::Span<const float> mine) override {
    return meeting_.Meet(rank_, mine);
  }

 private:
  Meeting& meeting_;
  const int rank_;
};

struct Layer {
  Layer()
      : tensors{at::rand({kChannels}).add(0.5), at::randn({kChannels}),
                at::zeros({kChannels}), at::ones({kChannels})} {}

  // Equal tensors of its own.
  Layer Copy() const {
    Layer copy;
    copy.tensors = {tensors.weight.clone(), tensors.bias.clone(),
                    tensors.running_mean.clone(),
                    tensors.running_variance.clone()};
    return copy;
  }
  void TakeGradients() {
    tensors.weight.set_requires_grad(true);
    tensors.bias.set_requires_grad(true);
  }

  NormTensors tensors;
};

struct Worker {
  at::Tensor x, loss_weights, y;
  Layer layer;
};

void Run(Worker& worker, GatherStatistics& gather) {
  worker.x.set_requires_grad(true);
  worker.layer.TakeGradients();
  worker.y = SyncBatchNorm(worker.x, worker.layer.tensors, kMomentum, kEpsilon,
                           gather);
  worker.y.to(at::kFloat).mul(worker.loss_weights).sum().backward();
}

// Every worker's batch; one worker with all of it.
struct Comparison {
  std::vector<Worker> workers;
  Worker whole;
  int rounds = 0;
};

Comparison Compare(const std::vector<int64_t>& batches,
                   at::ScalarType type = at::kFloat) {
  Comparison result;
  const Layer layer;
  std::vector<at::Tensor> x, loss_weights;
  for (const int64_t batch : batches) {
    Worker& worker = result.workers.emplace_back();
    // Far from zero, where sums of squares alone would lose what matters.
    worker.x = at::randn({batch, kChannels, 3, 2}).mul(2).add(50).to(type);
    worker.loss_weights = at::randn(worker.x.sizes());
    worker.layer = layer.Copy();
    x.push_back(worker.x.to(at::kFloat).detach());
    loss_weights.push_back(worker.loss_weights);
  }
  Meeting meeting(static_cast<int>(batches.size()));
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < batches.size(); ++rank) {
    threads.emplace_back([&, rank] {
      Member member(meeting, static_cast<int>(rank));
      Run(result.workers[rank], member);
    });
  }
  for (std::thread& thread : threads) thread.join();
  result.rounds = meeting.rounds();
  Worker& whole = result.whole;
  whole.x = at::cat(x).set_requires_grad(true);
  whole.layer = layer.Copy();
  whole.layer.TakeGradients();
  const NormTensors& norm = whole.layer.tensors;
  whole.y = at::batch_norm(whole.x, norm.weight, norm.bias, norm.running_mean,
                           norm.running_variance, /*training=*/true, kMomentum,
                           kEpsilon, /*cudnn_enabled=*/true);
  whole.y.mul(at::cat(loss_weights)).sum().backward();
  return result;
}

void ExpectClose(const at::Tensor& a, const at::Tensor& b, double tolerance) {
  EXPECT_TRUE(at::allclose(a.to(at::kFloat), b, tolerance, tolerance))
      << a << "\n"
      << b;
}

// Of all workers, one behind the other.
template <typename Get>
at::Tensor All(const Comparison& run, const Get& get) {
  std::vector<at::Tensor> all;
  for (const Worker& worker : run.workers) all.push_back(get(worker));
  return at::cat(all);
}

void ExpectOneBatch(const Comparison& run, double tolerance) {
  ExpectClose(All(run, [](const Worker& w) { return w.y; }), run.whole.y,
              tolerance);
  ExpectClose(All(run, [](const Worker& w) { return w.x.grad(); }),
              run.whole.x.grad(), tolerance);
  at::Tensor for_weight = at::zeros({kChannels});
  at::Tensor for_bias = at::zeros({kChannels});
  const NormTensors& whole = run.whole.layer.tensors;
  for (const Worker& worker : run.workers) {
    const NormTensors& norm = worker.layer.tensors;
    for_weight += norm.weight.grad();
    for_bias += norm.bias.grad();
    ExpectClose(norm.running_mean, whole.running_mean, tolerance);
    ExpectClose(norm.running_variance, whole.running_variance, tolerance);
    const NormTensors& first = run.workers[0].layer.tensors;
    EXPECT_TRUE(norm.running_mean.equal(first.running_mean));
    EXPECT_TRUE(norm.running_variance.equal(first.running_variance));
  }
  ExpectClose(for_weight, whole.weight.grad(), 10 * tolerance);
  ExpectClose(for_bias, whole.bias.grad(), 10 * tolerance);
}

TEST(SyncBatchNorm, IsBatchNormOfAllWorkersBatches) {
  const Comparison run = Compare({4, 4, 4});
  ExpectOneBatch(run, 1e-4);
  EXPECT_EQ(run.rounds, 2) << "one of forward, one of backward";
}

TEST(SyncBatchNorm, TakesBatchesOfDifferentSizes) {
  ExpectOneBatch(Compare({1, 7, 2}), 1e-4);
  ExpectOneBatch(Compare({3}), 1e-4);
  ExpectOneBatch(Compare({0, 5}), 1e-4);
}

TEST(SyncBatchNorm, KeepsSixteenBits) {
  const Comparison run = Compare({4, 4}, at::kBFloat16);
  EXPECT_EQ(run.workers[0].y.scalar_type(), at::kBFloat16);
  EXPECT_EQ(run.workers[0].x.grad().scalar_type(), at::kBFloat16);
  ExpectOneBatch(run, 3e-2);
}

// One number a channel: nothing to take a variance of.
TEST(SyncBatchNorm, ThrowsWhereAllWorkersTogetherHaveOneValue) {
  Meeting meeting(1);
  Member member(meeting, 0);
  const Layer layer;
  EXPECT_THROW(SyncBatchNorm(at::randn({1, kChannels, 1, 1}), layer.tensors,
                             kMomentum, kEpsilon, member),
               std::exception);
}

class Broken : public GatherStatistics {
 public:
  std::vector<float> Gather(absl::Span<const float> /*mine*/) override {
    throw std::runtime_error("worker 1 is lost");
  }
};

TEST(SyncBatchNorm, PassesOnWhatGatherThrows) {
  Broken broken;
  const Layer layer;
  EXPECT_THROW(SyncBatchNorm(at::randn({2, kChannels, 1, 1}), layer.tensors,
                             kMomentum, kEpsilon, broken),
               std::runtime_error);
}

TEST(BatchNorm2d, RefusesABatchOfOneValueAChannel) {
  const BatchNorm2d norm(kChannels);
  try {
    norm(at::randn({1, kChannels, 1, 1}), /*training=*/true);
    FAIL();
  } catch (const c10::Error& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                ::testing::HasSubstr("only one value a channel"));
  }
}

TEST(BatchNorm2d, IsSynchronisedInTrainingAlone) {
  Meeting meeting(1);
  Member member(meeting, 0);
  BatchNorm2d norm(kChannels);
  norm.Synchronise(member);
  const at::Tensor x = at::randn({4, kChannels, 2, 2});
  norm(x, /*training=*/false);
  EXPECT_EQ(meeting.rounds(), 0);
  norm(x, /*training=*/true);
  EXPECT_EQ(meeting.rounds(), 1);
}

}  // namespace
}  // namespace psring
