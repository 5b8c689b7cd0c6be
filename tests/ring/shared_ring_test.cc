// Ranks that are threads and share memory; their collectives run on threads of
// their own or on these.
#include "ring/shared_ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/state/state_files.h"
#include "tests/ring/test_ring.h"
#include "tests/testing/optimizer_state.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using Where = SerialRunner::Where;

const std::vector<std::string> kSlots = {"exp_avg", "exp_avg_sq"};
constexpr int kRanks = 3;
constexpr int64_t kSteps = 3;

// A few tensors in several buckets. The update depends on the number of the
// step twice: by adam's bias correction and by the rate.
proto::JobSpec Spec() {
  proto::JobSpec spec;
  spec.set_bucket_bytes(4000);
  for (const int64_t elements : {1, 777, 16, 3001, 64, 1234}) {
    proto::TensorShape& tensor = *spec.add_tensors();
    tensor.set_name("t" + std::to_string(elements));
    tensor.add_shape(elements);
  }
  proto::OptimizerSettings& optimizer = *spec.mutable_optimizer();
  optimizer.set_name("adam");
  optimizer.set_lr(0.05);
  optimizer.set_beta1(0.9);
  optimizer.set_beta2(0.999);
  optimizer.set_epsilon(1e-8);
  optimizer.mutable_schedule()->set_kind("cosine");
  spec.set_steps(2 * kSteps);
  return spec;
}

class SharedRingTest : public ::testing::TestWithParam<Where> {
 protected:
  SharedRingTest() {
    *job_.mutable_spec() = Spec();
    for (int r = 0; r < kRanks; ++r) {
      models_.push_back(NewModel(SameHost::kAuto));
      proto::Process* const worker = job_.add_workers();
      worker->set_rank(r);
      worker->set_host("h");
      worker->set_role(proto::WORKER);
      *worker->mutable_shared_memory() = models_[r].arena->address();
    }
  }

  FlatModel NewModel(SameHost same_host) const {
    const proto::JobSpec& spec = job_.spec();
    auto layout = Layout::Create({spec.tensors().begin(), spec.tensors().end()},
                                 spec.bucket_bytes());
    return *FlatModel::Create(*std::move(layout), same_host,
                              static_cast<int>(kSlots.size()));
  }

  std::unique_ptr<SharedRing> Connect(int rank, absl::Duration step_timeout) {
    proto::Welcome job = job_;
    job.set_rank(rank);
    auto hosts = HostRanks::Find(job, models_[rank], cancellation_,
                                 [](absl::Span<float> rows) {
                                   std::fill(rows.begin(), rows.end(), 1.0f);
                                   return absl::OkStatus();
                                 });
    const SharedRing::Options options{.where = GetParam(),
                                      .threads = 1 + rank % 2,
                                      .step_timeout = step_timeout};
    return std::make_unique<SharedRing>(
        *std::move(hosts), *RankModel::Create(job, models_[rank]), options);
  }

  // `body` once a rank, joined, each on its own thread.
  void RunRanks(const std::function<void(int rank, SharedRing&)>& body,
                absl::Duration step_timeout = absl::Seconds(60)) {
    std::vector<std::unique_ptr<SharedRing>> rings;
    for (int r = 0; r < kRanks; ++r) rings.push_back(Connect(r, step_timeout));
    std::vector<std::thread> threads;
    for (int r = 0; r < kRanks; ++r) {
      threads.emplace_back([&, r] {
        const absl::Status joined = rings[r]->Join({}, Soon());
        EXPECT_TRUE(joined.ok()) << joined;
        body(r, *rings[r]);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }

  absl::Status Step(int rank, SharedRing& ring) {
    FlatModel& model = models_[rank];
    const std::vector<float> gradients = DataOf(
        rank + kRanks * static_cast<int>(ring.step()), model.gradients.size());
    std::copy(gradients.begin(), gradients.end(), model.gradients.data());
    for (int b = 0; b < model.layout.num_buckets(); ++b) {
      if (absl::Status s = ring.Submit(b); !s.ok()) return s;
    }
    return ring.Finish(Soon());
  }

  // The same steps as one pass after the other: sum, then update.
  void StepByItself(RankModel& model, int64_t step) {
    for (int b = 0; b < model.layout().num_buckets(); ++b) {
      const Range range = model.layout().bucket(b);
      std::vector<std::vector<float>> all;
      for (int r = 0; r < kRanks; ++r) {
        const std::vector<float> whole = DataOf(
            r + kRanks * static_cast<int>(step), model.layout().num_elements());
        all.emplace_back(whole.begin() + range.begin,
                         whole.begin() + range.end);
      }
      const std::vector<float> mean = SumOf(all, 1.0f / kRanks);
      model.Update(model.bucket(b), {0, range.size()}, mean.data(), step);
    }
  }

  Cancellation cancellation_;
  proto::Welcome job_;
  std::vector<FlatModel> models_;
};

TEST_P(SharedRingTest, TrainsToTheBitsOfASumAndAnUpdate) {
  const std::string saved = testing::TestDirectory(".saved");
  RunRanks([&](int rank, SharedRing& ring) {
    for (int64_t step = 0; step < kSteps; ++step) {
      EXPECT_EQ(ring.step(), step);
      const absl::Status status = Step(rank, ring);
      ASSERT_TRUE(status.ok()) << status;
    }
    ASSERT_TRUE(ring.Synchronise(Before::kSaveState, Soon()).ok());
    if (rank == 0) {
      ASSERT_TRUE(
          SaveStateFiles(ring, saved, models_[0].layout, kSlots, Soon()).ok());
      EXPECT_EQ(*FetchedSlots(ring, models_[0].layout, 2, Soon()),
                *SlotsInFiles(saved, models_[0].layout, kSlots));
    }
    ASSERT_TRUE(ring.Synchronise(Before::kEvaluation, Soon()).ok());
  });
  FlatModel flat = NewModel(SameHost::kOff);
  RankModel expected = *RankModel::Create(job_, flat);
  ASSERT_TRUE(
      expected.TakeSlots({}, {{{0, flat.layout.num_elements()}, 0}}).ok());
  for (int64_t step = 0; step < kSteps; ++step) StepByItself(expected, step);
  for (FlatModel& model : models_) {
    EXPECT_EQ(VectorOf(model.parameters.span()),
              VectorOf(flat.parameters.span()));
  }
  // Rank 0 has written the state of all ranks' slices.
  const std::string by_itself = testing::TestDirectory(".by_itself");
  ASSERT_TRUE(LayOutStateFiles(by_itself, flat.layout, kSlots, {}).ok());
  const auto edges = expected.Save(by_itself);
  ASSERT_TRUE(edges.ok() && WriteEdges(by_itself, *edges).ok());
  for (const char* file : {kModelFile, kOptimizerFile}) {
    EXPECT_TRUE(testing::ReadFile(saved + "/" + file) ==
                testing::ReadFile(by_itself + "/" + file))
        << file;
  }
}

TEST_P(SharedRingTest, AnAllReduceByItselfIsTheCanonicalSum) {
  RunRanks([&](int rank, SharedRing& ring) {
    std::vector<float> data = DataOf(rank, 5000);
    ASSERT_TRUE(ring.AllReduce(absl::MakeSpan(data), 0.5f, Soon()).ok());
    EXPECT_EQ(data,
              SumOf({DataOf(0, 5000), DataOf(1, 5000), DataOf(2, 5000)}, 0.5f));
  });
}

TEST_P(SharedRingTest, NamesWhoIsMissingWithStepAndBucket) {
  std::barrier others(2);
  RunRanks(
      [&](int rank, SharedRing& ring) {
        if (rank == 1) return;
        others.arrive_and_wait();
        ASSERT_TRUE(ring.Submit(0).ok());
        const absl::Status status = ring.Finish(Soon());
        EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
        EXPECT_THAT(std::string(status.message()),
                    ::testing::AllOf(::testing::HasSubstr("step 0, bucket 0"),
                                     ::testing::HasSubstr("worker 1 (host h")));
      },
      absl::Seconds(1));
}

INSTANTIATE_TEST_SUITE_P(Threads, SharedRingTest,
                         ::testing::Values(Where::kOwnThread,
                                           Where::kCallersThread));

}  // namespace
}  // namespace psring
