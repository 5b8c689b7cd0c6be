#include "ps/shard_steps.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "ps/update_log.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int kElements = 32;
constexpr int kWorkers = 2;

// One piece of 32 parameters, all 1, unless a test makes more, and plain sgd
// with lr 0.5. The workers are elsewhere.
class ShardStepsTest : public ::testing::Test {
 protected:
  ShardStepsTest() {
    for (int w = 0; w < kWorkers; ++w) {
      proto::Process& worker = *job_.add_workers();
      worker.set_role(proto::WORKER);
      worker.set_rank(w);
    }
    proto::JobSpec& spec = *job_.mutable_spec();
    spec.set_sync(proto::BSP);
    spec.mutable_optimizer()->set_name("sgd");
    spec.mutable_optimizer()->set_lr(0.5);
    spec.mutable_optimizer()->mutable_schedule()->set_kind("constant");
    MakePieces(1);
  }

  // Each is a bucket.
  void MakePieces(int n) {
    proto::TensorShape shape;
    shape.add_shape(kElements);
    std::vector<proto::TensorShape> shapes;
    for (int i = 0; i < n; ++i) {
      shape.set_name(absl::StrCat("t", i));
      shapes.push_back(shape);
    }
    const Range all{0, n * kElements};
    layout_ = std::make_unique<Layout>(
        *Layout::Create(shapes, kElements * sizeof(float)));
    pieces_ = std::make_unique<PieceTable>(*layout_, Ranges{all});
    shard_ = std::make_unique<Shard>(
        *Shard::Create({all}, *Optimizer::Create(spec().optimizer())));
    const std::vector<float> ones(n * kElements, 1.0f);
    shard_->Set(0, all, ones.data());
  }

  proto::JobSpec& spec() { return *job_.mutable_spec(); }

  void Start(const ShardStepsOptions& options = {}) {
    steps_.emplace(
        ShardStepsParts{job_, *layout_, *pieces_, *shard_, host_, replies_},
        options);
  }

  absl::Status PushOf(int worker, int64_t step, float gradient, int piece = 0) {
    const std::vector<float> values(kElements, gradient);
    Push push;
    push.peer = absl::StrCat("worker ", worker);
    push.payload = Frame::OfSize(kElements * sizeof(float));
    std::memcpy(push.payload.data(), values.data(), push.payload.size());
    push.gradient = push.payload.data();
    return steps_->OnPush(piece, worker, step, std::move(push));
  }

  float parameter() { return shard_->parameters(0)[kElements - 1]; }

  // What has been answered since the last call, in order.
  std::vector<std::string> TakeAnswers() { return std::exchange(answers_, {}); }

  proto::Welcome job_;
  std::vector<std::string> answers_;
  std::unique_ptr<Layout> layout_;
  std::unique_ptr<PieceTable> pieces_;
  std::unique_ptr<Shard> shard_;
  ShardReplies replies_{
      [this](const DataMessage& reply) {
        answers_.push_back(absl::StrCat(reply.peer, ": ", reply.header.step(),
                                        ", then ", reply.header.next_step()));
      },
      job_};
  HostShard host_{{}, 0, {0}, /*pushes=*/nullptr, /*together=*/false};
  std::optional<ShardSteps> steps_;
};

TEST_F(ShardStepsTest, BspUpdatesOnceEveryWorkerHasPushed) {
  Start();
  ASSERT_TRUE(PushOf(1, 0, 3.0f).ok());
  EXPECT_EQ(parameter(), 1.0f);
  ASSERT_TRUE(PushOf(1, 0, 3.0f).ok());  // a repeat
  EXPECT_EQ(parameter(), 1.0f);
  EXPECT_THAT(TakeAnswers(), IsEmpty());
  ASSERT_TRUE(PushOf(0, 0, 1.0f).ok());
  EXPECT_EQ(parameter(), 0.0f);  // 1 - 0.5 * (1 + 3) / 2
  EXPECT_THAT(TakeAnswers(),
              ElementsAre("worker 0: 0, then 1", "worker 1: 0, then 1"));
  ASSERT_TRUE(PushOf(1, 0, 3.0f).ok());  // its answer may have been lost
  EXPECT_THAT(TakeAnswers(), ElementsAre("worker 1: 0, then 1"));
  EXPECT_EQ(parameter(), 0.0f);
}

TEST_F(ShardStepsTest, AsyncUpdatesWithEveryPush) {
  spec().set_sync(proto::ASYNC);
  Start();
  ASSERT_TRUE(PushOf(1, 0, 1.0f).ok());
  EXPECT_EQ(parameter(), 0.5f);
  ASSERT_TRUE(PushOf(1, 1, 1.0f).ok());
  EXPECT_EQ(parameter(), 0.0f);
}

TEST_F(ShardStepsTest, AWorkerThatHasDoneItsPartHoldsNobodyUp) {
  spec().set_sync(proto::SSP);
  std::vector<int> left;
  Start({.workers_left = [&] { return left; }});
  ASSERT_TRUE(PushOf(0, 0, 1.0f).ok());
  steps_->ReleaseFromThoseWhoLeft();
  EXPECT_THAT(TakeAnswers(), IsEmpty());
  left = {1};
  steps_->ReleaseFromThoseWhoLeft();
  EXPECT_THAT(TakeAnswers(), ElementsAre("worker 0: 0, then 1"));
  ASSERT_TRUE(PushOf(0, 1, 1.0f).ok());
  EXPECT_THAT(TakeAnswers(), ElementsAre("worker 0: 1, then 2"));
}

// Two workers whose GPUs sum, and one elsewhere.
class SummedShardStepsTest : public ShardStepsTest {
 protected:
  SummedShardStepsTest() {
    for (int w = 0; w < kWorkers; ++w) {
      job_.mutable_workers(w)->set_sum_device(absl::StrCat(w));
    }
    proto::Process third = job_.workers(0);
    third.set_rank(kWorkers);
    third.set_host("elsewhere");
    third.clear_sum_device();
    *job_.add_workers() = third;
  }
};

TEST_F(SummedShardStepsTest, ASumCountsAsManyGradientsAsItHas) {
  Start();
  ASSERT_TRUE(PushOf(2, 0, 1.0f).ok());
  ASSERT_TRUE(PushOf(0, 0, 5.0f).ok());
  EXPECT_EQ(parameter(), 0.0f);  // 1 - 0.5 * (1 + 5) / 3
}

TEST_F(SummedShardStepsTest, WhoseGradientsAnotherSumsMayNotPush) {
  Start();
  const absl::Status status = PushOf(1, 0, 1.0f);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("worker 1 pushes, whose gradients worker 0 sums"));
}

TEST_F(SummedShardStepsTest, WhoHoldsOthersUpIsNamedWithThoseItPushesFor) {
  Start({.step_timeout = absl::Seconds(60)});
  const Time start = Now();
  ASSERT_TRUE(PushOf(2, 0, 1.0f).ok());
  EXPECT_THAT(std::string(steps_
                              ->CheckDeadlines(start + absl::Minutes(2),
                                               std::vector<Time>(3, start))
                              .message()),
              HasSubstr("; it pushes the sum of workers 0, 1"));
}

TEST_F(ShardStepsTest, APushOutOfTurnIsRefused) {
  Start();
  EXPECT_EQ(PushOf(0, 1, 1.0f).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(parameter(), 1.0f);
}

TEST_F(ShardStepsTest, AGradientAfterItsStepHasClosedIsCountedAndDropped) {
  spec().set_backup_workers(1);
  Start();
  ASSERT_TRUE(PushOf(1, 0, 1.0f).ok());
  EXPECT_EQ(parameter(), 0.5f);
  ASSERT_TRUE(PushOf(0, 0, 1.0f).ok());
  EXPECT_EQ(parameter(), 0.5f);
  EXPECT_THAT(steps_->late_gradients(), ElementsAre(1, 0));
}

TEST_F(ShardStepsTest, TellsEachStepOnce) {
  std::vector<int64_t> told;
  Start({.on_step = [&](int64_t step) { told.push_back(step); }});
  for (int64_t step : {0, 1}) {
    for (int w : {0, 1}) ASSERT_TRUE(PushOf(w, step, 1.0f).ok());
  }
  EXPECT_THAT(told, ElementsAre(0, 1));
}

TEST_F(ShardStepsTest, NamesTheWorkerThatHoldsOthersUp) {
  Start({.step_timeout = absl::Seconds(60)});
  const Time start = Now();
  const std::vector<Time> last_message(kWorkers, start);
  const Time late = start + absl::Minutes(2);
  EXPECT_TRUE(steps_->CheckDeadlines(late, last_message).ok());
  ASSERT_TRUE(PushOf(0, 0, 1.0f).ok());
  EXPECT_TRUE(steps_->CheckDeadlines(start, last_message).ok());
  const absl::Status status = steps_->CheckDeadlines(late, last_message);
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("worker 1"),
                    HasSubstr("has not pushed step 0, bucket 0 within 1m"),
                    HasSubstr("its last message came 2m ago")));
}

// A slow worker's pieces come one by one: those of the others that wait for the
// last of them wait for as long as they come.
TEST_F(ShardStepsTest, WhoseOtherPiecesComeHoldsNobodyUp) {
  MakePieces(2);
  Start({.step_timeout = absl::Seconds(60)});
  for (const int piece : {0, 1}) {
    ASSERT_TRUE(PushOf(0, 0, 1.0f, piece).ok());
  }
  const Time waits = Now();
  while (Now() <= waits) {
  }
  ASSERT_TRUE(PushOf(1, 0, 1.0f, 0).ok());
  const std::vector<Time> last_message(kWorkers, waits);
  const Time due = waits + absl::Seconds(60) + absl::Nanoseconds(1);
  EXPECT_EQ(steps_->CheckDeadlines(due, last_message), absl::OkStatus());
  EXPECT_THAT(
      std::string(steps_->CheckDeadlines(due + absl::Minutes(1), last_message)
                      .message()),
      AllOf(HasSubstr("worker 1"),
            HasSubstr("has not pushed step 0, bucket 1 within 1m")));
}

// A worker that goes on by itself does not excuse another that does not.
TEST_F(ShardStepsTest, AThirdWorkersStepsDoNotPutOffTheOneThatHoldsOthersUp) {
  proto::Process third = job_.workers(0);
  third.set_rank(kWorkers);
  *job_.add_workers() = third;
  spec().set_sync(proto::SSP);
  spec().set_staleness(1);
  Start({.step_timeout = absl::Seconds(60)});
  for (const int64_t step : {0, 1}) {
    ASSERT_TRUE(PushOf(0, step, 1.0f).ok());
  }
  const Time waits = Now();  // worker 0, for worker 1
  while (Now() <= waits) {
  }
  ASSERT_TRUE(PushOf(2, 0, 1.0f).ok());
  const std::vector<Time> last_message(kWorkers + 1, waits);
  EXPECT_TRUE(
      steps_->CheckDeadlines(waits + absl::Seconds(30), last_message).ok());
  EXPECT_THAT(
      std::string(
          steps_->CheckDeadlines(waits + absl::Seconds(60), last_message)
              .message()),
      HasSubstr("worker 1"));
  // What it waited for has come.
  ASSERT_TRUE(PushOf(1, 0, 1.0f).ok());
  EXPECT_TRUE(
      steps_->CheckDeadlines(waits + absl::Hours(1), last_message).ok());
}

// It has come early, and waits for the step after the one that is open.
TEST_F(ShardStepsTest, WhoWaitsForTheNextStepWaitsFromTheEndOfTheLast) {
  proto::Process third = job_.workers(0);
  third.set_rank(kWorkers);
  *job_.add_workers() = third;
  spec().set_backup_workers(1);
  Start({.step_timeout = absl::Seconds(60)});
  ASSERT_TRUE(PushOf(2, 1, 1.0f).ok());
  const Time waits = Now();
  while (Now() <= waits) {
  }
  for (const int w : {0, 1}) ASSERT_TRUE(PushOf(w, 0, 1.0f).ok());
  const std::vector<Time> last_message(kWorkers + 1, waits);
  const Time due = waits + absl::Seconds(60) + absl::Nanoseconds(1);
  EXPECT_EQ(steps_->CheckDeadlines(due, last_message), absl::OkStatus());
  EXPECT_FALSE(
      steps_->CheckDeadlines(due + absl::Minutes(1), last_message).ok());
}

TEST_F(ShardStepsTest, RecordsWhatItTakesInItsOrder) {
  spec().set_sync(proto::ASYNC);
  const std::string folder = testing::TestDirectory() + "/log";
  const proto::UpdateLogHeader header = UpdateLogHeaderOf(job_, 0);
  auto log = UpdateLogWriter::Create(folder, header);
  ASSERT_TRUE(log.ok()) << log.status();
  Start({.record = &*log});
  ASSERT_TRUE(PushOf(1, 0, 1.0f).ok());
  ASSERT_TRUE(PushOf(1, 0, 1.0f).ok());  // a repeat
  ASSERT_TRUE(steps_->OnPull(0, 0, "worker 0").ok());
  ASSERT_TRUE(PushOf(0, 0, 1.0f).ok());
  ASSERT_TRUE(log->Finish().ok());
  const auto turns = ReadUpdateLog(folder, header, /*num_pieces=*/1);
  ASSERT_TRUE(turns.ok()) << turns.status();
  EXPECT_EQ((*turns)[0],
            (std::vector<UpdateTurn>{{1, 0}, {0, kPullTurn}, {0, 0}}));
}

TEST_F(ShardStepsTest, AReplayTakesPushesInTheirRecordedTurn) {
  spec().set_sync(proto::ASYNC);
  Replay replay({{{1, 0}, {0, 0}}}, kWorkers);
  Start({.replay = &replay});
  ASSERT_TRUE(PushOf(0, 0, 1.0f).ok());
  EXPECT_EQ(parameter(), 1.0f);
  const Time now = Now();
  EXPECT_THAT(std::string(steps_
                              ->CheckDeadlines(now + absl::Minutes(2),
                                               std::vector<Time>(kWorkers, now))
                              .message()),
              HasSubstr("worker 1"));
  ASSERT_TRUE(PushOf(1, 0, 1.0f).ok());
  EXPECT_EQ(parameter(), 0.0f);
  TakeAnswers();
  ASSERT_TRUE(PushOf(1, 0, 1.0f).ok());  // a repeat is not held back
  EXPECT_THAT(TakeAnswers(), ElementsAre("worker 1: 0, then 1"));
  EXPECT_TRUE(steps_->failure().ok());
}

TEST_F(ShardStepsTest, FailsOnceTheRecordingCannotBeRepeated) {
  spec().set_sync(proto::ASYNC);
  Replay replay({{{0, 0}}}, kWorkers);
  Start({.replay = &replay});
  ASSERT_TRUE(PushOf(0, 7, 1.0f).ok());
  EXPECT_EQ(steps_->failure().code(), absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace psring
