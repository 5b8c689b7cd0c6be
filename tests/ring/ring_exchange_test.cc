#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/testing/local_job.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LocalJobOptions RingOf(int workers) {
  LocalJobOptions options;
  options.spec = SmallSpec(proto::RING, proto::BSP);
  options.num_workers = workers;
  return options;
}

TEST(RingExchange, EveryWorkerHoldsTheSameParametersAfterEveryStep) {
  std::vector<std::vector<float>> finals(3);
  for (const absl::Status& s : RunLocalJob(RingOf(3), TrainBody(10, &finals))) {
    EXPECT_TRUE(s.ok()) << s;
  }
  EXPECT_EQ(finals[0], finals[1]);
  EXPECT_EQ(finals[0], finals[2]);
}

// Stopping after 4 steps and going on from the state is the same as not
// stopping.
TEST(RingExchange, ResumesFromHandedInState) {
  std::vector<std::vector<float>> whole(2);
  for (const absl::Status& s : RunLocalJob(RingOf(2), TrainBody(1, &whole))) {
    EXPECT_TRUE(s.ok()) << s;
  }
  LocalJobOptions options = RingOf(2);
  options.spec.set_first_step(1);
  std::vector<float> resumed;
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    std::vector<FlatBuffer> slots;
    if (worker.rank == 0) {
      std::copy(whole[0].begin(), whole[0].end(),
                worker.model.parameters.data());
      slots.push_back(*FlatBuffer::Create(worker.model.parameters.size()));
      slots[0].data()[0] = 0.25f;
    }
    if (absl::Status s = worker.exchange->Join(std::move(slots), Soon());
        !s.ok()) {
      return s;
    }
    EXPECT_EQ(worker.model.parameters.data()[5], whole[0][5]);
    for (float& g : worker.model.gradients.span()) g = 0.0f;
    for (int b = 0; b < worker.model.layout.num_buckets(); ++b) {
      if (absl::Status s = worker.exchange->Submit(b); !s.ok()) return s;
    }
    if (absl::Status s = worker.exchange->Finish(Soon()); !s.ok()) return s;
    // Zero gradient: what moves the parameter is the momentum handed in.
    EXPECT_EQ(worker.model.parameters.data()[0],
              whole[0][0] - 0.05f * (0.9f * 0.25f));
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

TEST(RingExchange, AWorkerThatDoesNotTakePartIsNamedWithStepAndBucket) {
  LocalJobOptions options = RingOf(2);
  options.step_timeout = absl::Seconds(1);
  const auto body = [](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
    if (worker.rank == 1) {
      return Wait(std::vector<Socket*>{}, worker.cancellation, Soon());
    }
    if (absl::Status s = worker.exchange->Submit(0); !s.ok()) return s;
    return worker.exchange->Finish(Soon());
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_THAT(std::string(s.message()),
                AllOf(HasSubstr("step 0, bucket 0"), HasSubstr("worker 1")));
  }
}

}  // namespace
}  // namespace psring
