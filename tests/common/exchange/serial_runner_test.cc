#include "common/exchange/serial_runner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

namespace psring {
namespace {

using ::testing::ElementsAre;
using Where = SerialRunner::Where;

class SerialRunnerTest : public ::testing::TestWithParam<Where> {};

TEST_P(SerialRunnerTest, RunsTasksInTheirOrder) {
  SerialRunner runner(GetParam());
  std::vector<int> ran;
  int64_t last = 0;
  for (int i = 0; i < 100; ++i) {
    last = runner.Post([&ran, i] {
      ran.push_back(i);
      return absl::OkStatus();
    });
    EXPECT_EQ(last, i + 1);
  }
  ASSERT_TRUE(runner.Await(last).ok());
  ASSERT_EQ(ran.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(ran[i], i);
}

TEST_P(SerialRunnerTest, RunsNothingAfterAnError) {
  SerialRunner runner(GetParam());
  std::vector<int> ran;
  const auto task = [&ran](int i, absl::Status result) {
    return [&ran, i, result] {
      ran.push_back(i);
      return result;
    };
  };
  const absl::Status lost = absl::UnavailableError("lost worker 1");
  runner.Post(task(1, absl::OkStatus()));
  runner.Post(task(2, lost));
  EXPECT_EQ(runner.Await(runner.Post(task(3, absl::OkStatus()))), lost);
  EXPECT_EQ(runner.Run(task(4, absl::InternalError("another"))), lost);
  EXPECT_THAT(ran, ElementsAre(1, 2));
}

TEST_P(SerialRunnerTest, RunReturnsWhatItsTaskDoes) {
  SerialRunner runner(GetParam());
  int ran = 0;
  EXPECT_TRUE(runner
                  .Run([&] {
                    ++ran;
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(ran, 1);
  const absl::Status late = absl::DeadlineExceededError("late");
  EXPECT_EQ(runner.Run([&] { return late; }), late);
}

INSTANTIATE_TEST_SUITE_P(Threads, SerialRunnerTest,
                         ::testing::Values(Where::kOwnThread,
                                           Where::kCallersThread));

TEST(SerialRunner, ItsOwnThreadRunsWhileTheCallerDoesSomethingElse) {
  std::vector<std::thread::id> threads;
  {
    SerialRunner runner(Where::kOwnThread,
                        [&] { threads.push_back(std::this_thread::get_id()); });
    absl::Notification ran;
    const int64_t number = runner.Post([&] {
      threads.push_back(std::this_thread::get_id());
      ran.Notify();
      return absl::OkStatus();
    });
    ran.WaitForNotification();  // without Await
    EXPECT_TRUE(runner.Await(number).ok());
  }
  ASSERT_EQ(threads.size(), 2u);
  EXPECT_NE(threads[0], std::this_thread::get_id());
  EXPECT_EQ(threads[1], threads[0]);
}

TEST(SerialRunner, AwaitReturnsWhileLaterTasksAreUnderWay) {
  SerialRunner runner(Where::kOwnThread);
  absl::Notification awaited;
  const int64_t first = runner.Post([] { return absl::OkStatus(); });
  const int64_t second = runner.Post([&] {
    awaited.WaitForNotification();
    return absl::OkStatus();
  });
  EXPECT_TRUE(runner.Await(first).ok());
  awaited.Notify();
  EXPECT_TRUE(runner.Await(second).ok());
}

TEST(SerialRunner, ACallerThatWaitsRunsItsTaskItself) {
  SerialRunner runner(Where::kOwnThread);
  std::thread::id thread;
  EXPECT_TRUE(runner
                  .Run([&] {
                    thread = std::this_thread::get_id();
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_EQ(thread, std::this_thread::get_id());
}

// As gradients' buckets are submitted by the thread that runs backward.
TEST(SerialRunner, WhatIsPostedWhileACallerRunsATaskRunsAfterIt) {
  SerialRunner runner(Where::kOwnThread);
  absl::Notification ran;
  EXPECT_TRUE(runner
                  .Run([&] {
                    std::thread([&] {
                      runner.Post([&] {
                        ran.Notify();
                        return absl::OkStatus();
                      });
                    }).join();
                    EXPECT_FALSE(ran.HasBeenNotified());
                    return absl::OkStatus();
                  })
                  .ok());
  EXPECT_TRUE(ran.WaitForNotificationWithTimeout(absl::Seconds(30)));
}

TEST(SerialRunner, TheCallersThreadRunsTasksInAwaitAlone) {
  SerialRunner runner(Where::kCallersThread);
  std::thread::id thread;
  const int64_t number = runner.Post([&] {
    thread = std::this_thread::get_id();
    return absl::OkStatus();
  });
  EXPECT_EQ(thread, std::thread::id());
  EXPECT_TRUE(runner.Await(number).ok());
  EXPECT_EQ(thread, std::this_thread::get_id());
}

}  // namespace
}  // namespace psring
