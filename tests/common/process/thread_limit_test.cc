#include "common/process/thread_limit.h"

#include <gtest/gtest.h>

#include <csignal>
#include <new>
#include <stdexcept>
#include <system_error>
#include <thread>

namespace psring {
namespace {

using ::testing::ExitedWithCode;
using ::testing::KilledBySignal;

// On a thread of its own, where nobody catches it.
template <typename Error>
void ThrowOnThread(const Error& error) {
  EndWhereNoThreadStarts("psring ps");
  std::thread([&error] { throw error; }).join();
}

TEST(ThreadLimitDeathTest, IsOneErrorWithTheRemedy) {
  const std::system_error error(
      std::make_error_code(std::errc::resource_unavailable_try_again));
  EXPECT_EXIT(ThrowOnThread(error), ExitedWithCode(1),
              "^psring ps: cannot start a thread: Resource temporarily "
              "unavailable. Raise the limit of processes");
}

TEST(ThreadLimitDeathTest, SoIsMemoryThatNobodyCatchesTheWantOf) {
  EXPECT_EXIT(ThrowOnThread(std::bad_alloc()), ExitedWithCode(1),
              "^psring ps: there is not enough memory. Raise the limit of "
              "memory \\(ulimit -v");
}

TEST(ThreadLimitDeathTest, IsNoOtherErrorThatNobodyCatches) {
  EXPECT_EXIT(ThrowOnThread(std::runtime_error("no thread")),
              KilledBySignal(SIGABRT), "no thread");
}

}  // namespace
}  // namespace psring
