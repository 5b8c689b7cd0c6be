#include "python/capi/tasks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

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

TEST(Tasks, SayWhereTheSystemHasNoThreadForThem) {
  pthread_attr_t usual, huge;
  ASSERT_EQ(pthread_getattr_default_np(&usual), 0);
  ASSERT_EQ(pthread_attr_init(&huge), 0);
  // More than there are addresses.
  ASSERT_EQ(pthread_attr_setstacksize(&huge, size_t{1} << 48), 0);
  ASSERT_EQ(pthread_setattr_default_np(&huge), 0);
  Tasks tasks;
  const auto handle = tasks.Start(
      []() -> absl::StatusOr<std::string> { return std::string("done"); });
  pthread_setattr_default_np(&usual);
  const auto waited = tasks.Wait(handle, absl::Seconds(30));
  ASSERT_TRUE(waited.ok() && waited->has_value());
  EXPECT_TRUE(absl::IsResourceExhausted(**waited)) << **waited;
}

}  // namespace
}  // namespace psring
