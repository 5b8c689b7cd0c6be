// A ring's exchange, whichever it is: a SharedRing or a MessageRing.
#include "ring/ring_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/state/state_files.h"
#include "tests/testing/local_job.h"
#include "tests/testing/optimizer_state.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::string> kSlots = {"momentum_buffer"};

// How its workers reach each other.
enum class Reach { kSharedMemory, kMessages, kBoth };

// Buckets of every way that messages take.
LocalJobOptions RingOf(int workers, Reach reach) {
  LocalJobOptions options;
  options.spec = SmallSpec(proto::RING, proto::BSP);
  proto::TensorShape& large = *options.spec.add_tensors();
  large.set_name("large");
  large.add_shape(150000);
  options.num_workers = workers;
  if (reach == Reach::kMessages) options.same_host = SameHost::kOff;
  if (reach == Reach::kBoth) {
    options.same_host_of = [](int index) {
      return index == 0 ? SameHost::kOff : SameHost::kAuto;
    };
  }
  return options;
}

class RingExchangeTest : public ::testing::TestWithParam<Reach> {};

INSTANTIATE_TEST_SUITE_P(Reaches, RingExchangeTest,
                         ::testing::Values(Reach::kSharedMemory,
                                           Reach::kMessages, Reach::kBoth));

TEST_P(RingExchangeTest, EveryWorkerHoldsTheSameParametersAfterEveryStep) {
  std::vector<std::vector<float>> finals(3);
  for (const absl::Status& s :
       RunLocalJob(RingOf(3, GetParam()), TrainBody(10, &finals))) {
    EXPECT_TRUE(s.ok()) << s;
  }
  EXPECT_EQ(finals[0], finals[1]);
  EXPECT_EQ(finals[0], finals[2]);
}

// The parameters and the optimizer's state, to the bit: also where each rank
// keeps its own slices' state alone; and rank 0 fetches what it saves.
TEST(RingExchange, SavesTheSameStateHoweverItsWorkersReachEachOther) {
  std::vector<std::string> saved;
  for (const Reach reach :
       {Reach::kSharedMemory, Reach::kMessages, Reach::kBoth}) {
    const std::string directory =
        testing::TestDirectory("." + std::to_string(saved.size()));
    std::vector<std::vector<float>> unused(3);
    const auto train = TrainBody(4, &unused);
    const auto body = [&](LocalWorker& worker) -> absl::Status {
      if (absl::Status s = train(worker); !s.ok()) return s;
      if (absl::Status s =
              worker.exchange->Synchronise(Before::kSaveState, Soon());
          !s.ok()) {
        return s;
      }
      const Layout& layout = worker.model.layout;
      if (worker.rank == 0) {
        const auto state =
            SaveStateFiles(*worker.exchange, directory, layout, kSlots, Soon());
        if (!state.ok()) return state.status();
      }
      if (absl::Status s =
              worker.exchange->Synchronise(Before::kSaveState, Soon());
          !s.ok()) {
        return s;
      }
      if (worker.rank == 0) {
        EXPECT_EQ(*FetchedSlots(*worker.exchange, layout, 1, Soon()),
                  *SlotsInFiles(directory, layout, kSlots));
      }
      return worker.exchange->Synchronise(Before::kEvaluation, Soon());
    };
    for (const absl::Status& s : RunLocalJob(RingOf(3, reach), body)) {
      EXPECT_TRUE(s.ok()) << s;
    }
    saved.push_back(testing::ReadFile(directory + "/" + kModelFile) +
                    testing::ReadFile(directory + "/" + kOptimizerFile));
  }
  EXPECT_TRUE(saved[0] == saved[1]);
  EXPECT_TRUE(saved[0] == saved[2]);
}

TEST(RingExchange, CountsBytesOfMessagesAlone) {
  for (const Reach reach : {Reach::kSharedMemory, Reach::kMessages}) {
    std::vector<std::vector<float>> unused(2);
    const auto train = TrainBody(3, &unused);
    const auto body = [&](LocalWorker& worker) -> absl::Status {
      if (absl::Status s = train(worker); !s.ok()) return s;
      const Traffic traffic = worker.exchange->traffic();
      const int64_t model_bytes = worker.model.layout.num_elements() *
                                  static_cast<int64_t>(sizeof(float));
      // Of two workers each sends one half, in every step, to be summed.
      EXPECT_EQ(traffic.gradients_sent > 0, reach == Reach::kMessages);
      EXPECT_EQ(traffic.sent > 3 * model_bytes, reach == Reach::kMessages);
      EXPECT_EQ(traffic.received > 3 * model_bytes, reach == Reach::kMessages);
      return absl::OkStatus();
    };
    for (const absl::Status& s : RunLocalJob(RingOf(2, reach), body)) {
      EXPECT_TRUE(s.ok()) << s;
    }
  }
}

// Stopping after 4 steps and going on from the state is the same as not
// stopping.
TEST_P(RingExchangeTest, ResumesFromHandedInState) {
  std::vector<std::vector<float>> whole(3);
  for (const absl::Status& s :
       RunLocalJob(RingOf(3, GetParam()), TrainBody(1, &whole))) {
    EXPECT_TRUE(s.ok()) << s;
  }
  LocalJobOptions options = RingOf(3, GetParam());
  options.spec.set_first_step(1);
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    std::vector<FlatBuffer> slots;
    if (worker.rank == 0) {
      std::copy(whole[0].begin(), whole[0].end(),
                worker.model.parameters.data());
      slots.push_back(*FlatBuffer::Create(worker.model.parameters.size()));
      std::fill_n(slots[0].data(), slots[0].size(), 0.25f);
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
    // Zero gradients: what moves a parameter is the momentum handed in.
    for (int64_t i = 0; i < worker.model.parameters.size(); ++i) {
      if (worker.model.parameters.data()[i] ==
          whole[0][i] - 0.05f * (0.9f * 0.25f)) {
        continue;
      }
      return absl::InternalError(absl::StrCat("another parameter ", i));
    }
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

// It comes in parts: rank 0 would have queued all of it.
TEST_P(RingExchangeTest, EveryRankBeginsWithRankZerosLargeModel) {
  LocalJobOptions options = RingOf(2, GetParam());
  proto::TensorShape& tensor = *options.spec.add_tensors();
  tensor.set_name("larger");
  tensor.add_shape(17'000'000);
  const auto body = [](LocalWorker& worker) -> absl::Status {
    const absl::Span<float> parameters = worker.model.parameters.span();
    for (size_t i = 0; i < parameters.size(); ++i) {
      parameters[i] = worker.rank == 0 ? static_cast<float>(i) : -1.0f;
    }
    if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
    size_t same = 0;
    while (same < parameters.size() &&
           parameters[same] == static_cast<float>(same)) {
      ++same;
    }
    EXPECT_EQ(same, parameters.size());
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

// Rank 0 only sends, and could be through while the others still wait.
TEST_P(RingExchangeTest, StateOfManyBucketsWaitsForARankThatComesLate) {
  LocalJobOptions options = RingOf(3, GetParam());
  for (int i = 0; i < 100; ++i) {
    proto::TensorShape& tensor = *options.spec.add_tensors();
    tensor.set_name(absl::StrCat("many", i));
    tensor.add_shape(20000);  // a bucket, whose slices have owners
  }
  const auto body = [](LocalWorker& worker) -> absl::Status {
    std::vector<FlatBuffer> slots;
    if (worker.rank == 0) {
      slots.push_back(*FlatBuffer::Create(worker.model.parameters.size()));
    }
    if (worker.rank == 1) absl::SleepFor(absl::Milliseconds(200));
    if (absl::Status s = worker.exchange->Join(std::move(slots), Soon());
        !s.ok()) {
      return s;
    }
    return worker.exchange->Synchronise(Before::kSaveState, Soon());
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

TEST_P(RingExchangeTest, AWorkerThatDoesNotTakePartIsNamedWithStepAndBucket) {
  LocalJobOptions options = RingOf(2, GetParam());
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
