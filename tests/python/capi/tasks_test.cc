#include "python/capi/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <future>

#include "absl/time/clock.h"

namespace psring {
namespace {

TEST(Tasks, GiveTheirResultWhenTheyAreDone) {
  Tasks tasks;
  std::promise<void> go;
  auto gate = go.get_future().share();
  const auto handle = tasks.Start([gate]() -> absl::StatusOr<std::string> {
    gate.wait();
    return std::string("done");
  });
  EXPECT_GT(handle, 0);
  auto waited = tasks.Wait(handle, absl::Milliseconds(1));
  ASSERT_TRUE(waited.ok());
  EXPECT_FALSE(waited->has_value());
  EXPECT_EQ(tasks.Result(handle).status().code(),
            absl::StatusCode::kFailedPrecondition);
  go.set_value();
  waited = tasks.Wait(handle, absl::Seconds(30));
  ASSERT_TRUE(waited.ok() && waited->has_value());
  EXPECT_TRUE((*waited)->ok());
  EXPECT_EQ(*tasks.Result(handle), "done");
}

TEST(Tasks, KeepAnErrorUntilTheHandleIsReleased) {
  Tasks tasks;
  const auto handle = tasks.Start(
      []() -> absl::StatusOr<std::string> { return absl::AbortedError("no"); });
  for (int i = 0; i < 2; ++i) {
    const auto waited = tasks.Wait(handle, absl::Seconds(30));
    ASSERT_TRUE(waited.ok() && waited->has_value());
    EXPECT_EQ((*waited)->message(), "no");
  }
  tasks.Release(handle);
  EXPECT_EQ(tasks.Wait(handle, absl::ZeroDuration()).status().code(),
            absl::StatusCode::kNotFound);
  EXPECT_EQ(tasks.Wait(77, absl::ZeroDuration()).status().code(),
            absl::StatusCode::kNotFound);
}

// Exits with 0 where a task says so.
void StartWithoutMemoryForAThread() {
  const rlimit none = {0, 0};
  setrlimit(RLIMIT_AS, &none);
  Tasks tasks;
  const auto handle = tasks.Start(
      []() -> absl::StatusOr<std::string> { return std::string("done"); });
  const auto waited = tasks.Wait(handle, absl::Seconds(30));
  _exit(waited.ok() && absl::IsResourceExhausted(**waited) ? 0 : 1);
}

TEST(TasksDeathTest, SayWhereTheSystemHasNoThreadForThem) {
  // No thread has been there before whose stack may be used again.
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(StartWithoutMemoryForAThread(), testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace psring
