#include "ps/ps_exchange.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/model/layout.h"
#include "ps/shard_map.h"
#include "tests/ps/placed_job.h"
#include "tests/testing/local_job.h"
#include "tests/testing/optimizer_state.h"
#include "tests/testing/sanitized.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

class PlacementTest : public ::testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(All, PlacementTest, ::testing::ValuesIn(kTransports));

TEST(Topologies, BspAndRingEndWithTheSameBitsHoweverTheyArePlaced) {
  const auto train = [](proto::Mode mode, int workers, int servers,
                        Transport transport) {
    LocalJobOptions options = Options(mode, proto::BSP, workers, servers);
    options.shard_threads = servers == 2 ? 2 : 1;
    if (workers == 3) AddPieces(options.spec);
    return Train(Placed(options, transport), 6);
  };
  for (int workers : SanitizedUpTo(3, {1, 2, 3, 4})) {
    const Finals reference =
        train(proto::RING, workers, 0, Transport::kMessages);
    for (Transport transport : kTransports) {
      const Finals ring = train(proto::RING, workers, 0, transport);
      for (int w = 0; w < workers; ++w) EXPECT_EQ(reference[0], ring[w]);
      for (int servers : {1, 2, 3}) {
        const Finals ps =
            train(proto::PARAMETER_SERVER, workers, servers, transport);
        for (int w = 0; w < workers; ++w) {
          EXPECT_EQ(reference[0], ps[w])
              << workers << " workers, " << servers << " servers, transport "
              << static_cast<int>(transport);
        }
      }
    }
  }
}

// Whoever copies them then, to a GPU, need not look at them again.
TEST_P(PlacementTest, ABucketIsToldOnceItHoldsTheNextStep) {
  LocalJobOptions options =
      Placed(Options(proto::PARAMETER_SERVER, proto::BSP, 2, 2), GetParam());
  options.shard_threads = 2;
  AddPieces(options.spec);
  for (const absl::Status& s : RunLocalJob(options, [](LocalWorker& worker) {
         const Layout& layout = worker.model.layout;
         const float* const parameters = worker.model.parameters.data();
         std::map<int, std::vector<float>> told;
         const auto arrived = [&](int bucket) {
           const Range range = layout.bucket(bucket);
           EXPECT_EQ(told.count(bucket), 0u);
           told[bucket].assign(parameters + range.begin,
                               parameters + range.end);
         };
         if (auto s = worker.exchange->Join({}, arrived, Soon()); !s.ok()) {
           return s;
         }
         for (int step = 0; step < 4; ++step) {
           FillGradients(worker, step);
           for (int b = 0; b < layout.num_buckets(); ++b) {
             if (auto s = worker.exchange->Submit(b); !s.ok()) return s;
           }
           if (auto s = worker.exchange->Finish(Soon()); !s.ok()) return s;
           EXPECT_EQ(told.size(), static_cast<size_t>(layout.num_buckets()));
           for (const auto& [bucket, values] : told) {
             const Range range = layout.bucket(bucket);
             EXPECT_TRUE(std::equal(values.begin(), values.end(),
                                    parameters + range.begin))
                 << "bucket " << bucket << ", step " << step;
           }
           told.clear();
         }
         return absl::OkStatus();
       })) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

// In Submit, while backward goes on: a GPU gets it then.
TEST(PsExchange, ABucketThatHasBeenAnsweredIsToldWithTheNextOne) {
  const LocalJobOptions options =
      Placed(Options(proto::PARAMETER_SERVER, proto::BSP, 1),
             Transport::kSharedMemory);
  for (const absl::Status& s : RunLocalJob(options, [](LocalWorker& worker) {
         const Layout& layout = worker.model.layout;
         std::vector<int> told;
         const auto arrived = [&](int bucket) { told.push_back(bucket); };
         if (auto s = worker.exchange->Join({}, arrived, Soon()); !s.ok()) {
           return s;
         }
         FillGradients(worker, 0);
         if (auto s = worker.exchange->Submit(0); !s.ok()) return s;
         int64_t num_pieces = 0;
         for (const ShardPlace& shard :
              MapShards(layout, worker.client->job())) {
           for (const Piece& piece :
                PiecesOfShard(layout, shard.ranges, kPieceElements)) {
             num_pieces += piece.bucket == 0 ? 1 : 0;
           }
         }
         EXPECT_GT(num_pieces, 0);
         const Time deadline = Soon();
         while (worker.model.arena->answered(0).load() < num_pieces &&
                Now() < deadline) {
           absl::SleepFor(absl::Milliseconds(1));
         }
         if (auto s = worker.exchange->Submit(1); !s.ok()) return s;
         EXPECT_EQ(told.empty() ? -1 : told.front(), 0);
         for (int b = 2; b < layout.num_buckets(); ++b) {
           if (auto s = worker.exchange->Submit(b); !s.ok()) return s;
         }
         return worker.exchange->Finish(Soon());
       })) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

// To the bit, and the steps that follow are not disturbed.
TEST_P(PlacementTest, WorkerZeroFetchesTheStateThatServersSave) {
  for (proto::Sync sync : {proto::BSP, proto::ASYNC}) {
    LocalJobOptions options =
        Placed(Options(proto::PARAMETER_SERVER, sync, 2, 2), GetParam());
    AddPieces(options.spec);
    const std::string folder = testing::TestDirectory();
    const std::vector<std::string> names = {"momentum_buffer"};
    Finals finals(2);
    const auto before = TrainBody(4, &finals);
    const auto body = [&](LocalWorker& worker) -> absl::Status {
      if (absl::Status s = before(worker); !s.ok()) return s;
      GradientExchange& exchange = *worker.exchange;
      if (absl::Status s = exchange.Synchronise(Before::kSaveState, Soon());
          !s.ok()) {
        return s;
      }
      const Layout& layout = worker.model.layout;
      if (worker.rank == 0) {
        const auto saved =
            SaveStateFiles(exchange, folder, layout, names, Soon());
        if (!saved.ok()) return saved.status();
        const auto fetched = FetchedSlots(exchange, layout, 1, Soon());
        if (!fetched.ok()) return fetched.status();
        EXPECT_EQ(*fetched, *SlotsInFiles(folder, layout, names));
        EXPECT_NE(fetched->front().front(), 0.0f);
      }
      if (absl::Status s = exchange.Synchronise(Before::kEvaluation, Soon());
          !s.ok()) {
        return s;
      }
      while (exchange.step() < 8) {
        FillGradients(worker, exchange.step());
        if (absl::Status s = Push(worker); !s.ok()) return s;
      }
      finals[worker.rank] = ParametersOf(worker);
      return absl::OkStatus();
    };
    for (const absl::Status& s : RunLocalJob(options, body)) {
      EXPECT_TRUE(s.ok()) << s;
    }
    if (sync == proto::BSP) {
      EXPECT_EQ(finals, Train(options, 8));
    }
  }
}

// Every gradient moves every parameter by 1, so that parameters count the
// gradients that have come: 20 of each of 3 workers.
TEST_P(PlacementTest, StaleModesCountEveryGradientOnceAndKeepTheirBound) {
  for (proto::Sync sync : {proto::SSP, proto::ASYNC}) {
    LocalJobOptions options =
        Placed(Options(proto::PARAMETER_SERVER, sync, 3, 2), GetParam());
    options.spec.set_staleness(1);
    options.spec.mutable_optimizer()->set_name("sgd");
    options.spec.mutable_optimizer()->set_momentum(0);
    options.spec.mutable_optimizer()->set_lr(1.0);
    const auto body = [&](LocalWorker& worker) -> absl::Status {
      if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
      for (int made = 1; made <= 20; ++made) {
        for (float& g : worker.model.gradients.span()) g = -1.0f;
        if (absl::Status s = Push(worker); !s.ok()) return s;
        EXPECT_EQ(worker.exchange->step(), made);
        // With staleness 1 the others have pushed one step less at least, and
        // two more at most: one that is ahead by 1 pushes before it waits.
        const std::vector<float> p = ParametersOf(worker);
        const auto [least, most] = std::minmax_element(p.begin(), p.end());
        EXPECT_GE(*least, sync == proto::SSP ? made + 2 * (made - 1) : made);
        EXPECT_LE(*most, made + 2 * (sync == proto::SSP ? made + 2 : 20));
      }
      if (absl::Status s =
              worker.exchange->Synchronise(Before::kEvaluation, Soon());
          !s.ok()) {
        return s;
      }
      const std::vector<float> p = ParametersOf(worker);
      EXPECT_EQ(p, std::vector<float>(p.size(), 60.0f));
      return absl::OkStatus();
    };
    for (const absl::Status& s : RunLocalJob(options, body)) {
      EXPECT_TRUE(s.ok()) << s;
    }
  }
}

// Plain sgd is linear: whatever the order, all workers' gradients add up. The
// last worker to finish sees every update exactly once.
TEST_P(PlacementTest, AsyncAppliesEveryGradientExactlyOnce) {
  LocalJobOptions options =
      Placed(Options(proto::PARAMETER_SERVER, proto::ASYNC, 3, 2), GetParam());
  options.spec.mutable_optimizer()->set_name("sgd");
  options.spec.mutable_optimizer()->set_momentum(0);
  options.spec.mutable_optimizer()->set_lr(1.0);
  Finals finals(3);
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
    for (int step = 0; step < 10; ++step) {
      for (float& g : worker.model.gradients.span()) g = -1.0f;
      for (int b = 0; b < worker.model.layout.num_buckets(); ++b) {
        if (absl::Status s = worker.exchange->Submit(b); !s.ok()) return s;
      }
      if (absl::Status s = worker.exchange->Finish(Soon()); !s.ok()) return s;
    }
    finals[worker.rank].assign(
        worker.model.parameters.data(),
        worker.model.parameters.data() + worker.model.parameters.size());
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  for (size_t i = 0; i < finals[0].size(); ++i) {
    const float last = std::max({finals[0][i], finals[1][i], finals[2][i]});
    ASSERT_EQ(last, 30.0f) << "element " << i;
  }
}

// The third of three workers pushes its first step when the others have made
// six: nothing of it is in the parameters, which are those of two workers.
TEST_P(PlacementTest, ALateGradientIsDroppedAndItsWorkerGoesOnWithTheOpenStep) {
  const Finals two = Train(
      Placed(Options(proto::PARAMETER_SERVER, proto::BSP, 2, 2), GetParam()),
      6);
  LocalJobOptions options =
      Placed(Options(proto::PARAMETER_SERVER, proto::BSP, 3, 2), GetParam());
  options.spec.set_backup_workers(1);
  absl::BlockingCounter ahead(2);
  Finals finals(3);
  const auto train = TrainBody(6, &finals);
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    if (worker.rank < 2) {
      const absl::Status trained = train(worker);
      ahead.DecrementCount();
      if (!trained.ok()) return trained;
    } else {
      if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
      ahead.Wait();
      for (float& g : worker.model.gradients.span()) g = 1e6f;
      if (absl::Status s = Push(worker); !s.ok()) return s;
      EXPECT_EQ(worker.exchange->step(), 6);
      finals[2] = ParametersOf(worker);
    }
    if (absl::Status s =
            worker.exchange->Synchronise(Before::kEvaluation, Soon());
        !s.ok()) {
      return s;
    }
    EXPECT_EQ(ParametersOf(worker), two[0]);
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  for (const auto& parameters : finals) EXPECT_EQ(parameters, two[0]);
}

TEST_P(PlacementTest, BackupWorkersEndAtTheSameStepWithTheSameParameters) {
  for (int backup : {1, 2, 3}) {
    LocalJobOptions options =
        Placed(Options(proto::PARAMETER_SERVER, proto::BSP, 4, 2), GetParam());
    options.spec.set_backup_workers(backup);
    Finals finals(4);
    const auto body = [&](LocalWorker& worker) -> absl::Status {
      if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
      for (int64_t end : {20, 50}) {
        while (worker.exchange->step() < end) {
          FillGradients(worker, worker.exchange->step());
          if (absl::Status s = Push(worker); !s.ok()) return s;
        }
        EXPECT_EQ(worker.exchange->step(), end);
        if (absl::Status s =
                worker.exchange->Synchronise(Before::kEvaluation, Soon());
            !s.ok()) {
          return s;
        }
      }
      finals[worker.rank] = ParametersOf(worker);
      return absl::OkStatus();
    };
    for (const absl::Status& s : RunLocalJob(options, body)) {
      EXPECT_TRUE(s.ok()) << s;
    }
    for (const auto& parameters : finals) EXPECT_EQ(parameters, finals[0]);
  }
}

// Every worker's parameters, which are its last answers, are those of the run
// that was recorded, however the replay's gradients travel.
TEST_P(PlacementTest, AReplayGivesTheRecordedAnswersInEveryPlacement) {
  for (proto::Sync sync : {proto::ASYNC, proto::SSP}) {
    LocalJobOptions options =
        Placed(Options(proto::PARAMETER_SERVER, sync, 4, 2), GetParam());
    options.spec.set_staleness(1);
    options.spec.set_delay_compensation(0.1);
    options.spec.set_record_dir(absl::StrCat(testing::TestDirectory(), "/log"));
    const Finals recorded = Train(options, 20);
    options.spec.set_replay_dir(options.spec.record_dir());
    options.spec.clear_record_dir();
    for (Transport transport : kTransports) {
      EXPECT_EQ(Train(Placed(options, transport), 20), recorded);
    }
  }
}

}  // namespace
}  // namespace psring
