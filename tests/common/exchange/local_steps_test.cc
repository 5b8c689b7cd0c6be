#include "common/exchange/local_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/testing/local_job.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::HasSubstr;
using Finals = std::vector<std::vector<float>>;

LocalJobOptions Options(proto::Mode mode, int workers, int64_t local_steps) {
  LocalJobOptions options;
  options.spec = SmallSpec(mode, proto::BSP);
  options.spec.set_local_steps(local_steps);
  options.num_workers = workers;
  options.num_servers = 2;
  return options;
}

// Makes `steps` steps of TrainBody's, and synchronises.
Finals Train(const LocalJobOptions& options, int steps) {
  Finals finals(options.num_workers);
  const auto train = TrainBody(steps, &finals);
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = train(worker); !s.ok()) return s;
    EXPECT_EQ(worker.exchange->step(), steps);
    if (absl::Status s =
            worker.exchange->Synchronise(Before::kEvaluation, Soon());
        !s.ok()) {
      return s;
    }
    const FlatBuffer& p = worker.model.parameters;
    finals[worker.rank].assign(p.data(), p.data() + p.size());
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  return finals;
}

TEST(LocalSteps, ServersAndRingEndWithTheSameBits) {
  for (int workers : {1, 2, 3}) {
    // An averaging after step 3, 6, and before the synchronisation.
    const Finals ring = Train(Options(proto::RING, workers, 3), 7);
    const Finals ps = Train(Options(proto::PARAMETER_SERVER, workers, 3), 7);
    LocalJobOptions messages = Options(proto::PARAMETER_SERVER, workers, 3);
    messages.same_host = SameHost::kOff;
    const Finals remote = Train(messages, 7);
    messages.spec.set_mode(proto::RING);
    const Finals remote_ring = Train(messages, 7);
    for (int w = 0; w < workers; ++w) {
      EXPECT_EQ(ring[w], ring[0]);
      EXPECT_EQ(ps[w], ring[0]);
      EXPECT_EQ(remote[w], ring[0]);
      EXPECT_EQ(remote_ring[w], ring[0]);
    }
  }
}

// Two workers, two steps of plain sgd each, the mean: worked out beside it.
TEST(LocalSteps, AverageWhatEveryWorkerHasReachedOnItsOwn) {
  LocalJobOptions options = Options(proto::RING, 2, 2);
  options.spec.mutable_optimizer()->set_name("sgd");
  options.spec.mutable_optimizer()->set_momentum(0);
  Finals own(2), finals(2);
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
    const Layout& layout = worker.model.layout;
    std::vector<float>& mine = own[worker.rank];
    mine.resize(layout.num_elements(), 0.0f);
    for (int step = 0; step < 2; ++step) {
      FillGradients(worker, step);
      for (size_t i = 0; i < mine.size(); ++i) {
        mine[i] -= 0.05f * worker.model.gradients.data()[i];
      }
      for (int b = 0; b < layout.num_buckets(); ++b) {
        if (absl::Status s = worker.exchange->Submit(b); !s.ok()) return s;
      }
      if (absl::Status s = worker.exchange->Finish(Soon()); !s.ok()) return s;
      const FlatBuffer& p = worker.model.parameters;
      finals[worker.rank].assign(p.data(), p.data() + p.size());
      if (step == 0) {
        EXPECT_EQ(finals[worker.rank], mine);
      }
    }
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  for (size_t i = 0; i < own[0].size(); ++i) {
    ASSERT_EQ(finals[0][i], (own[0][i] + own[1][i]) * 0.5f) << i;
    ASSERT_EQ(finals[1][i], finals[0][i]) << i;
  }
}

TEST(LocalSteps, ACheckpointBetweenAveragingsIsRefused) {
  const LocalJobOptions options = Options(proto::PARAMETER_SERVER, 2, 4);
  Finals finals(2);
  const auto train = TrainBody(3, &finals);
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = train(worker); !s.ok()) return s;
    const absl::Status saved =
        worker.exchange->SaveState(testing::TestDirectory(), Soon()).status();
    EXPECT_EQ(saved.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(saved.message()),
                HasSubstr("a checkpoint of step 3, between averagings"));
    return worker.exchange->Synchronise(Before::kEvaluation, Soon());
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

}  // namespace
}  // namespace psring
