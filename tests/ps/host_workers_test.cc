#include "ps/host_workers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

namespace psring {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

Layout LayoutOf(const std::vector<int64_t>& sizes) {
  std::vector<proto::TensorShape> tensors;
  for (int64_t size : sizes) {
    proto::TensorShape& tensor = tensors.emplace_back();
    tensor.set_name(std::to_string(tensors.size()));
    tensor.add_shape(size);
  }
  return *Layout::Create(tensors, 1);
}

bool IsRung(Doorbell& doorbell) {
  pollfd item = {doorbell.fd(), POLLIN, 0};
  return poll(&item, 1, 0) == 1;
}

// Three workers of this host, and a model of three buckets.
class HostWorkersTest : public ::testing::Test {
 protected:
  HostWorkersTest() {
    for (int w = 0; w < 3; ++w) {
      arenas_.push_back(*WorkerArena::Create(layout_));
      *job_.add_workers()->mutable_shared_memory() = arenas_[w]->address();
    }
  }

  proto::SharedMemory& memory(int worker) {
    return *job_.mutable_workers(worker)->mutable_shared_memory();
  }

  // As the workers do once the shard has attached.
  void UseShard(int shard) {
    for (const auto& arena : arenas_) arena->shard(shard).used.store(1);
  }

  // Whether it is this push that rings the shard.
  bool Push(int worker, int bucket, int64_t step) {
    arenas_[worker]->pushed(bucket).store(step + 1);
    return pushes_.Add(1);
  }

  // What a look at the arenas finds; `hears` is answered to each.
  using Pushed = std::tuple<int, int, int64_t>;  // worker, bucket, step
  static std::vector<Pushed> Poll(HostShard& link, bool hears = true) {
    std::vector<Pushed> found;
    link.Poll([&](int worker, int bucket, int64_t step) {
      found.push_back({worker, bucket, step});
      return hears;
    });
    return found;
  }

  const Layout layout_ = LayoutOf({100, 50, 20});
  WakeCount pushes_ = {};
  std::vector<std::unique_ptr<WorkerArena>> arenas_;
  proto::Welcome job_;
};

TEST_F(HostWorkersTest, FindsThoseThatShareMemory) {
  job_.mutable_workers(1)->clear_shared_memory();
  const std::vector<HostWorker> found = FindHostWorkers(layout_, job_);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[1].arena, nullptr);
  EXPECT_EQ(found[1].button, nullptr);
  for (int w : {0, 2}) {
    ASSERT_NE(found[w].arena, nullptr);
    arenas_[w]->gradients()[7] = 10.0f + w;
    EXPECT_EQ(found[w].arena->gradients()[7], 10.0f + w);
    EXPECT_FALSE(IsRung(arenas_[w]->doorbell()));
    found[w].button->Ring();
    EXPECT_TRUE(IsRung(arenas_[w]->doorbell()));
  }
}

TEST_F(HostWorkersTest, WhoCannotBeReachedIsElsewhere) {
  const auto expect_elsewhere = [this](const char* what) {
    const std::vector<HostWorker> found = FindHostWorkers(layout_, job_);
    EXPECT_EQ(found[0].arena, nullptr) << what;
    EXPECT_EQ(found[0].button, nullptr) << what;
    EXPECT_NE(found[1].arena, nullptr) << what;
    memory(0) = arenas_[0]->address();
  };
  memory(0).set_nonce(memory(0).nonce() + 1);
  expect_elsewhere("another process");
  memory(0).set_size_bytes(memory(0).size_bytes() + 4096);
  expect_elsewhere("another model");
  memory(0).clear_doorbell_fds();
  expect_elsewhere("no doorbell");
  memory(0).add_doorbell_fds(memory(0).doorbell_fds(0));
  expect_elsewhere("two doorbells");
  memory(0).set_doorbell_fds(0, memory(0).fd());
  expect_elsewhere("a doorbell that is no pipe");
  memory(0).set_pid(-1);
  expect_elsewhere("no process");
}

TEST_F(HostWorkersTest, AttachesToTheArenas) {
  const std::vector<HostWorker> workers = FindHostWorkers(layout_, job_);
  const HostShard link(workers, 5, {0, 1, 2}, &pushes_, /*together=*/false);
  for (const auto& arena : arenas_) {
    EXPECT_EQ(arena->shard(5).attached.load(), 1u);
    EXPECT_EQ(arena->shard(4).attached.load(), 0u);
  }
  arenas_[1]->gradients()[33] = 5.0f;
  EXPECT_EQ(*link.gradients(1, 33), 5.0f);
  *link.parameters(2, 44) = 6.0f;
  EXPECT_EQ(arenas_[2]->parameters()[44], 6.0f);
}

// Who learns of nothing for long takes the server for hung.
TEST_F(HostWorkersTest, ManyAnswersAreToldBeforeTheLast) {
  const std::vector<HostWorker> workers = FindHostWorkers(layout_, job_);
  HostShard link(workers, 0, {0}, &pushes_, /*together=*/false);
  link.Answer(1, 0, 1);
  EXPECT_EQ(arenas_[1]->answers().count(), 0);
  for (int i = 1; i < 5000; ++i) link.Answer(1, 0, 1);
  EXPECT_GE(arenas_[1]->answers().count(), 4000);
  link.TellAnswers();
  EXPECT_EQ(arenas_[1]->answers().count(), 5000);
}

TEST_F(HostWorkersTest, TellsEveryPushOnce) {
  const std::vector<HostWorker> workers = FindHostWorkers(layout_, job_);
  HostShard link(workers, 0, {0, 2}, &pushes_, /*together=*/false);
  UseShard(0);
  EXPECT_THAT(Poll(link), IsEmpty());
  Push(1, 2, 0);
  Push(0, 1, 0);  // of a bucket of which the shard has no part
  Push(2, 0, 7);
  EXPECT_THAT(Poll(link), ElementsAre(Pushed{2, 0, 7}, Pushed{1, 2, 0}));
  EXPECT_THAT(Poll(link), IsEmpty());
  Push(1, 2, 1);
  EXPECT_THAT(Poll(link), ElementsAre(Pushed{1, 2, 1}));
}

// It still sends messages: its gradients must not count twice.
TEST_F(HostWorkersTest, AWorkerThatDoesNotUseTheShardIsNotRead) {
  const std::vector<HostWorker> workers = FindHostWorkers(layout_, job_);
  HostShard link(workers, 0, {0}, &pushes_, /*together=*/false);
  Push(0, 0, 3);
  EXPECT_THAT(Poll(link), IsEmpty());
  UseShard(0);
  EXPECT_THAT(Poll(link), ElementsAre(Pushed{0, 0, 3}));
}

TEST_F(HostWorkersTest, IsDeafToWhomItsOwnerRefuses) {
  const std::vector<HostWorker> workers = FindHostWorkers(layout_, job_);
  HostShard link(workers, 0, {0, 1}, &pushes_, /*together=*/false);
  UseShard(0);
  Push(0, 0, 5);
  EXPECT_THAT(Poll(link, /*hears=*/false), ElementsAre(Pushed{0, 0, 5}));
  Push(0, 0, 0);
  Push(0, 1, 0);
  Push(1, 1, 0);
  EXPECT_THAT(Poll(link), ElementsAre(Pushed{1, 1, 0}));
}

// Whatever a worker writes there, no step below 0 is told.
TEST_F(HostWorkersTest, IsDeafToCountsThatNobodyReaches) {
  for (const int64_t count :
       {int64_t{-1}, std::numeric_limits<int64_t>::min()}) {
    const std::vector<HostWorker> workers = FindHostWorkers(layout_, job_);
    HostShard link(workers, 0, {0}, &pushes_, /*together=*/false);
    UseShard(0);
    arenas_[0]->pushed(0).store(count);
    EXPECT_THAT(Poll(link), IsEmpty()) << count;
    Push(0, 0, 0);
    Push(1, 0, 0);
    EXPECT_THAT(Poll(link), ElementsAre(Pushed{1, 0, 0})) << count;
    arenas_[1]->pushed(0).store(0);
  }
}

TEST_F(HostWorkersTest, ShardsBeyondTheArenasSignalsUseMessages) {
  const std::vector<HostWorker> workers = FindHostWorkers(layout_, job_);
  HostShard link(workers, WorkerArena::kMaxShards, {0}, &pushes_,
                 /*together=*/false);
  // What lies behind the signals is neither written nor taken for one.
  EXPECT_EQ(arenas_[0]->pushed(0).load(), 0);
  Push(0, 0, int64_t{1} << 32);
  EXPECT_THAT(Poll(link), IsEmpty());
}

TEST_F(HostWorkersTest, AShardSleepsUntilABucketIsThereFromAll) {
  const std::vector<HostWorker> workers = FindHostWorkers(layout_, job_);
  HostShard link(workers, 0, {0, 1}, &pushes_, /*together=*/true);
  UseShard(0);
  Poll(link);
  ASSERT_TRUE(link.PrepareToSleep());
  EXPECT_FALSE(Push(0, 0, 0));
  EXPECT_FALSE(Push(2, 0, 0));
  EXPECT_TRUE(Push(1, 0, 0));
  EXPECT_THAT(Poll(link), SizeIs(3));
  Push(1, 1, 0);
  Push(2, 1, 0);
  EXPECT_THAT(Poll(link), SizeIs(2));
  ASSERT_TRUE(link.PrepareToSleep());
  EXPECT_TRUE(Push(0, 1, 0));
  EXPECT_THAT(Poll(link), ElementsAre(Pushed{0, 1, 0}));
}

// A push that comes after the look and before the sleep is not slept through.
TEST_F(HostWorkersTest, AShardDoesNotSleepOverWhatHasComeSinceItsLook) {
  const std::vector<HostWorker> workers = FindHostWorkers(layout_, job_);
  HostShard link(workers, 0, {0}, &pushes_, /*together=*/true);
  UseShard(0);
  Poll(link);
  for (int w : {0, 1, 2}) EXPECT_FALSE(Push(w, 0, 0));
  EXPECT_FALSE(link.PrepareToSleep());
  EXPECT_THAT(Poll(link), SizeIs(3));
  EXPECT_TRUE(link.PrepareToSleep());
}

TEST_F(HostWorkersTest, AShardThatAnswersOneByOneIsWokenByEveryPush) {
  const std::vector<HostWorker> workers = FindHostWorkers(layout_, job_);
  HostShard link(workers, 0, {0, 1}, &pushes_, /*together=*/false);
  UseShard(0);
  for (int w : {0, 1, 2}) {
    Poll(link);
    ASSERT_TRUE(link.PrepareToSleep());
    EXPECT_TRUE(Push(w, 0, 0));
    link.WakeUp();
  }
}

// Nobody waits for a worker that is not heard any more.
TEST_F(HostWorkersTest, AShardDoesNotSleepForWhomItIsDeafTo) {
  const std::vector<HostWorker> workers = FindHostWorkers(layout_, job_);
  HostShard link(workers, 0, {0}, &pushes_, /*together=*/true);
  UseShard(0);
  Push(0, 0, -2);
  Poll(link);
  ASSERT_TRUE(link.PrepareToSleep());
  EXPECT_FALSE(Push(1, 0, 0));
  EXPECT_TRUE(Push(2, 0, 0));
}

TEST_F(HostWorkersTest, AWorkerIsWokenByTheShardThatAnswersLast) {
  const std::vector<HostWorker> workers = FindHostWorkers(layout_, job_);
  WakeCount other_pushes = {};
  HostShard one(workers, 0, {0}, &pushes_, /*together=*/true);
  HostShard two(workers, 1, {0}, &other_pushes, /*together=*/true);
  ASSERT_TRUE(arenas_[1]->answers().PrepareToSleep(3));
  two.Answer(1, 0, 1);
  two.Answer(1, 0, 1);
  two.TellAnswers();
  EXPECT_FALSE(IsRung(arenas_[1]->doorbell()));
  one.Answer(1, 0, 1);
  EXPECT_FALSE(IsRung(arenas_[1]->doorbell()));
  one.TellAnswers();
  EXPECT_TRUE(IsRung(arenas_[1]->doorbell()));
}

TEST_F(HostWorkersTest, AnswersAreSeenOnceTheyAreTold) {
  const std::vector<HostWorker> workers = FindHostWorkers(layout_, job_);
  HostShard link(workers, 0, {0}, &pushes_, /*together=*/false);
  const ShardSignals& signals = arenas_[1]->shard(0);
  ASSERT_TRUE(arenas_[1]->answers().PrepareToSleep(1));
  link.Answer(1, 0, 4);
  link.Answer(1, 0, 9);
  link.Answer(1, 0, 6);
  EXPECT_EQ(signals.answers.load(), 0);
  link.TellAnswers();
  EXPECT_EQ(signals.answers.load(), 3);
  EXPECT_EQ(arenas_[1]->answers().count(), 3);
  EXPECT_EQ(signals.next_step.load(), 9);  // the furthest
  EXPECT_TRUE(IsRung(arenas_[1]->doorbell()));
  EXPECT_FALSE(IsRung(arenas_[0]->doorbell()));
  arenas_[1]->doorbell().Clear();
  link.TellAnswers();
  EXPECT_FALSE(IsRung(arenas_[1]->doorbell()));
}

}  // namespace
}  // namespace psring
