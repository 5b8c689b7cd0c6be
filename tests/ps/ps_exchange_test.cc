#include "ps/ps_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/synchronization/notification.h"
#include "common/state/state_files.h"
#include "ps/shard_map.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/local_job.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Finals = std::vector<std::vector<float>>;

Finals Train(const LocalJobOptions& options, int steps) {
  Finals finals(options.num_workers);
  for (const absl::Status& s :
       RunLocalJob(options, TrainBody(steps, &finals))) {
    EXPECT_TRUE(s.ok()) << s;
  }
  return finals;
}

LocalJobOptions Options(proto::Mode mode, proto::Sync sync, int workers,
                        int servers = 1) {
  LocalJobOptions options;
  options.spec = SmallSpec(mode, sync);
  options.num_workers = workers;
  options.num_servers = servers;
  return options;
}

// Whose memory is shared, and whose payload travels in messages.
enum class Placement {
  kMessages,
  kSharedMemory,
  kMixed,     // one worker sends messages
  kOneSided,  // servers reach the workers, but not the other way round
};
constexpr Placement kPlacements[] = {Placement::kMessages,
                                     Placement::kSharedMemory,
                                     Placement::kMixed, Placement::kOneSided};

LocalJobOptions Placed(LocalJobOptions options, Placement placement) {
  options.same_host =
      placement == Placement::kMessages ? SameHost::kOff : SameHost::kAuto;
  options.servers_publish = placement != Placement::kOneSided;
  if (placement == Placement::kMixed) {
    options.same_host_of = [](int index) {
      return index == 1 ? SameHost::kOff : SameHost::kAuto;
    };
  }
  return options;
}

class PlacementTest : public ::testing::TestWithParam<Placement> {};
INSTANTIATE_TEST_SUITE_P(All, PlacementTest, ::testing::ValuesIn(kPlacements));

TEST(Topologies, BspAndRingEndWithTheSameBitsHoweverTheyArePlaced) {
  for (int workers : {1, 2, 3, 4}) {
    const Finals reference = Train(
        Placed(Options(proto::RING, proto::BSP, workers), Placement::kMessages),
        6);
    for (Placement placement : kPlacements) {
      const Finals ring = Train(
          Placed(Options(proto::RING, proto::BSP, workers), placement), 6);
      for (int w = 0; w < workers; ++w) EXPECT_EQ(reference[0], ring[w]);
      for (int servers : {1, 2, 3}) {
        LocalJobOptions options = Placed(
            Options(proto::PARAMETER_SERVER, proto::BSP, workers, servers),
            placement);
        options.shard_threads = servers == 2 ? 2 : 1;
        const Finals ps = Train(options, 6);
        for (int w = 0; w < workers; ++w) {
          EXPECT_EQ(reference[0], ps[w])
              << workers << " workers, " << servers << " servers, placement "
              << static_cast<int>(placement);
        }
      }
    }
  }
}

absl::Status Push(LocalWorker& worker) {
  for (int b = 0; b < worker.model.layout.num_buckets(); ++b) {
    if (absl::Status s = worker.exchange->Submit(b); !s.ok()) return s;
  }
  return worker.exchange->Finish(Soon());
}

std::vector<float> ParametersOf(const LocalWorker& worker) {
  const FlatBuffer& p = worker.model.parameters;
  return {p.data(), p.data() + p.size()};
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
      if (absl::Status s = worker.exchange->Synchronise(Soon()); !s.ok()) {
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
    if (absl::Status s = worker.exchange->Synchronise(Soon()); !s.ok()) {
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
    options.shard_threads = 2;
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
        if (absl::Status s = worker.exchange->Synchronise(Soon()); !s.ok()) {
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
    options.shard_threads = 2;
    options.spec.set_staleness(1);
    options.spec.set_delay_compensation(0.1);
    options.spec.set_record_dir(absl::StrCat(testing::TestDirectory(), "/log"));
    const Finals recorded = Train(options, 20);
    options.spec.set_replay_dir(options.spec.record_dir());
    options.spec.clear_record_dir();
    for (Placement placement : kPlacements) {
      EXPECT_EQ(Train(Placed(options, placement), 20), recorded);
    }
  }
}

TEST(PsExchange, AWorkerThatAReplayAwaitsIsNamed) {
  LocalJobOptions options = Options(proto::PARAMETER_SERVER, proto::ASYNC, 2);
  options.spec.set_record_dir(absl::StrCat(testing::TestDirectory(), "/log"));
  const auto push = [](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
    return Push(worker);
  };
  absl::Notification first;
  const auto in_order = [&](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
    if (worker.rank == 1) first.WaitForNotification();
    const absl::Status s = Push(worker);
    if (worker.rank == 0) first.Notify();
    return s;
  };
  for (const absl::Status& s : RunLocalJob(options, in_order)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  options.spec.set_replay_dir(options.spec.record_dir());
  options.spec.clear_record_dir();
  options.step_timeout = absl::Seconds(1);
  const auto without_first = [&](LocalWorker& worker) -> absl::Status {
    if (worker.rank == 1) return push(worker);
    if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
    Socket* none = nullptr;
    return Wait(absl::MakeSpan(&none, 0), worker.cancellation, Soon());
  };
  for (const absl::Status& s : RunLocalJob(options, without_first)) {
    EXPECT_THAT(std::string(s.message()),
                AllOf(HasSubstr("worker 0 (host "),
                      HasSubstr(") has not pushed step 0, bucket ")));
  }
}

TEST_P(PlacementTest, AWorkerThatDoesNotPushIsNamed) {
  LocalJobOptions options =
      Placed(Options(proto::PARAMETER_SERVER, proto::BSP, 2), GetParam());
  options.step_timeout = absl::Seconds(1);
  const auto body = [](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = worker.exchange->Join({}, Soon()); !s.ok()) return s;
    if (worker.rank == 1) {  // sits there until the job has failed
      Socket* none = nullptr;
      return Wait(absl::MakeSpan(&none, 0), worker.cancellation, Soon());
    }
    FillGradients(worker, 0);
    for (int b = 0; b < worker.model.layout.num_buckets(); ++b) {
      if (absl::Status s = worker.exchange->Submit(b); !s.ok()) return s;
    }
    return worker.exchange->Finish(Soon());
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_THAT(std::string(s.message()),
                AllOf(HasSubstr("worker 1 (host "),
                      HasSubstr(") has not pushed step 0, bucket "),
                      HasSubstr("its last message came")));
  }
}

// Sends what worker 1 may not send to that shard, each from a stranger of its
// own; returns how many. All of it has been taken then.
int SendMalformed(const LocalWorker& worker, const ShardPlace& shard,
                  std::deque<HostilePeer>& strangers) {
  const proto::Welcome& job = worker.client->job();
  const Piece piece =
      PiecesOfShard(worker.model.layout, shard.range, kPieceElements).front();
  for (int attack = 0; attack < 9; ++attack) {
    proto::WireHeader header;
    header.set_kind(proto::WireHeader::PUSH);
    header.set_job_epoch(job.job_epoch() + (attack == 1 ? 1 : 0));
    header.set_sender(attack == 2 ? 99 : 1);
    header.set_step(attack == 3 ? 1000000 : worker.exchange->step());
    header.set_bucket(piece.bucket + (attack == 4 ? 77 : 0));
    header.set_offset(piece.range.begin + (attack == 5 ? 3 : 0));
    header.set_num_elements(attack == 6 ? uint64_t{1} << 62
                                        : piece.range.size());
    header.set_dtype(attack == 7 ? proto::WireHeader::BYTES
                                 : proto::WireHeader::FLOAT32);
    std::vector<std::string> frames = {
        attack == 0 ? "garbage" : header.SerializeAsString(),
        std::string(piece.range.size() * sizeof(float), 'x')};
    if (attack == 8) frames.push_back("one too many");
    HostilePeer& stranger = strangers.emplace_back(shard.endpoint);
    stranger.Send(frames);
    EXPECT_TRUE(stranger.AwaitTaken(Soon())) << attack;
  }
  return 9;
}

// Garbage, another job's epoch, wrong sizes, steps, buckets and types, a worker
// that does not exist: in the middle of training, at every shard.
TEST_P(PlacementTest, MalformedPeersAreDroppedAndDoNotDisturbTraining) {
  const LocalJobOptions options =
      Placed(Options(proto::PARAMETER_SERVER, proto::BSP, 2, 2), GetParam());
  const Finals undisturbed = Train(options, 8);
  const CapturedLog log;
  std::deque<HostilePeer> strangers;
  std::map<std::string, int> malformed;  // by a shard's endpoint
  Finals finals(2);
  const auto before = TrainBody(4, &finals);
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = before(worker); !s.ok()) return s;
    if (worker.rank == 0) {
      for (const ShardPlace& shard :
           MapShards(worker.model.layout, worker.client->job())) {
        malformed[shard.endpoint] = SendMalformed(worker, shard, strangers);
      }
    }
    while (worker.exchange->step() < 8) {
      FillGradients(worker, worker.exchange->step());
      if (absl::Status s = Push(worker); !s.ok()) return s;
    }
    finals[worker.rank] = ParametersOf(worker);
    return absl::OkStatus();
  };
  for (const absl::Status& s : RunLocalJob(options, body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
  EXPECT_EQ(finals, undisturbed);
  EXPECT_THAT(malformed, SizeIs(2));
  for (const auto& [endpoint, count] : malformed) {
    EXPECT_EQ(log.Count(absl::StrCat(" of ", endpoint, ": ")), count);
  }
}

// Every server refuses; none of their answers comes into the next step.
TEST(PsExchange, ASaveThatFailsDisturbsNoStep) {
  std::vector<std::vector<float>> finals(1);
  const auto train = TrainBody(2, &finals);
  const std::string folder = testing::TestDirectory();
  const auto body = [&](LocalWorker& worker) -> absl::Status {
    if (absl::Status s = train(worker); !s.ok()) return s;
    GradientExchange& exchange = *worker.exchange;
    const absl::Status saved =
        exchange.SaveState(folder + "/none", Soon()).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(saved)) << saved;
    EXPECT_THAT(std::string(saved.message()), HasSubstr(folder + "/none"));
    for (int step = 2; step < 4; ++step) {
      FillGradients(worker, step);
      for (int b = 0; b < worker.model.layout.num_buckets(); ++b) {
        if (absl::Status s = exchange.Submit(b); !s.ok()) return s;
      }
      if (absl::Status s = exchange.Finish(Soon()); !s.ok()) return s;
    }
    const auto laid_out =
        LayOutStateFiles(folder, worker.model.layout, {"momentum_buffer"}, {});
    if (!laid_out.ok()) return laid_out.status();
    const auto state = exchange.SaveState(folder, Soon());
    EXPECT_EQ(state->runs_size(), 6);  // of three servers, in two files
    return state.status();
  };
  for (const absl::Status& s :
       RunLocalJob(Options(proto::PARAMETER_SERVER, proto::BSP, 1, 3), body)) {
    EXPECT_TRUE(s.ok()) << s;
  }
}

}  // namespace
}  // namespace psring
