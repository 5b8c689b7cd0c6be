#include "common/net/shm_arena.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/net/available_memory.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::unique_ptr<ShmArena> Make(int64_t size_bytes) {
  auto arena = ShmArena::Create(size_bytes);
  EXPECT_TRUE(arena.ok()) << arena.status();
  return *std::move(arena);
}

// The exit code of `body` in a process of its own.
int InChild(const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) _exit(body());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(ShmArena, AnotherProcessSeesTheSameMemory) {
  auto arena = Make(100000);
  arena->data()[99999] = 'a';
  EXPECT_EQ(InChild([&] {
              auto mapped = ShmArena::Map(arena->address());
              if (!mapped.ok()) return 1;
              if ((*mapped)->data()[99999] != 'a') return 2;
              (*mapped)->data()[0] = 'b';
              return 0;
            }),
            0);
  EXPECT_EQ(arena->data()[0], 'b');
}

TEST(ShmArena, IsZeroedAndMayBeEmpty) {
  auto arena = Make(5000);
  for (int i = 0; i < 5000; ++i) ASSERT_EQ(arena->data()[i], 0);
  auto empty = Make(0);
  EXPECT_TRUE(ShmArena::Map(empty->address()).ok());
}

TEST(ShmArena, WhatIsNotProvenIsNotMapped) {
  auto arena = Make(5000);
  const proto::SharedMemory address = arena->address();
  const auto expect_unavailable = [](const proto::SharedMemory& wrong) {
    EXPECT_EQ(ShmArena::Map(wrong).status().code(),
              absl::StatusCode::kUnavailable)
        << wrong.ShortDebugString();
  };
  proto::SharedMemory wrong = address;
  wrong.set_nonce(address.nonce() + 1);
  expect_unavailable(wrong);
  wrong = address;
  wrong.set_size_bytes(address.size_bytes() + 1);
  expect_unavailable(wrong);
  wrong = address;
  wrong.set_pid(1);
  expect_unavailable(wrong);
  wrong.set_pid(1 << 30);
  expect_unavailable(wrong);
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  wrong = address;
  wrong.set_fd(file);
  expect_unavailable(wrong);
  close(file);
  wrong.set_fd(1 << 30);
  expect_unavailable(wrong);
  expect_unavailable(proto::SharedMemory());
}

TEST(ShmArena, NobodyCanShrinkIt) {
  auto arena = Make(100000);
  const std::string path =
      absl::StrCat("/proc/", getpid(), "/fd/", arena->address().fd());
  EXPECT_NE(truncate(path.c_str(), 0), 0);
  EXPECT_EQ(arena->data()[99999], 0);
}

TEST(ShmArena, TooMuchIsRefusedWithBothSizes) {
  const absl::Status status = ShmArena::Create(int64_t{1} << 45).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("shared memory of 33554432 MiB"),
            HasSubstr("MiB are available"), HasSubstr("--same-host=off")));
}

// The kernel would kill the process, or another one.
TEST(ShmArena, WhatIsReservedLaterIsRefusedLikewise) {
  // Also where other programs end meanwhile.
  const int64_t size = AvailableMemory() + (int64_t{1} << 40);
  const auto arena = ShmArena::Create(size, /*reserved_bytes=*/4096);
  ASSERT_TRUE(arena.ok()) << arena.status();
  const absl::Status status = (*arena)->Reserve(4096, size - 4096);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("MiB are available"));
}

TEST(ShmArena, ALimitOfFileSizesIsNamed) {
  EXPECT_EQ(
      InChild([] {
        std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit = {1 << 20, 1 << 20};
        setrlimit(RLIMIT_FSIZE, &limit);
        const std::string message(ShmArena::Create(2 << 20).status().message());
        return message.find("ulimit -f") == std::string::npos ? 1 : 0;
      }),
      0);
}

// Containers bound /dev/shm to 64 MiB and less.
TEST(ShmArena, AFullDevShmDoesNotMatter) {
  const int code = InChild([] {
    if (unshare(CLONE_NEWNS) != 0 ||
        mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
        mount("none", "/dev/shm", "tmpfs", 0, "size=4k") != 0) {
      return 77;
    }
    return ShmArena::Create(8 << 20).ok() ? 0 : 1;
  });
  if (code == 77) GTEST_SKIP() << "needs root, to bound /dev/shm";
  EXPECT_EQ(code, 0);
}

}  // namespace
}  // namespace psring
