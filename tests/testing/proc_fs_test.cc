#include "tests/testing/proc_fs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/net/shm_arena.h"
#include "common/net/socket.h"
#include "tests/testing/process.h"

namespace psring {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

TEST(ProcFsTest, FindsThePortsThatAProcessListensOn) {
  EXPECT_THAT(ListeningPorts(getpid()), ElementsAre());
  Context context;
  auto socket = Socket::Bind(context, "127.0.0.1", 0);
  ASSERT_TRUE(socket.ok()) << socket.status();
  const std::vector<int> ports = ListeningPorts(getpid());
  ASSERT_EQ(ports.size(), 1u);
  EXPECT_EQ((*socket)->endpoint(), absl::StrCat("tcp://127.0.0.1:", ports[0]));
}

TEST(ProcFsTest, FindsSharedMemoryWhileItIsMapped) {
  EXPECT_THAT(SharedMemoryOf(getpid()), IsEmpty());
  {
    const auto arena = ShmArena::Create(1 << 12);
    ASSERT_TRUE(arena.ok()) << arena.status();
    EXPECT_THAT(SharedMemoryOf(getpid()), SizeIs(1));
    EXPECT_THAT(AllProcesses(), Contains(getpid()));
  }
  EXPECT_THAT(SharedMemoryOf(getpid()), IsEmpty());
}

TEST(ProcFsTest, FindsChildrenUntilTheyAreDead) {
  auto child = Process::Start({"/bin/sh", "-c", "exec sleep 1000"});
  ASSERT_TRUE(child.ok()) << child.status();
  EXPECT_THAT(ChildrenOf(getpid()), ElementsAre(child->pid()));
  EXPECT_TRUE(IsAlive(child->pid()));
  child->Signal(SIGKILL);
  child->Wait(Time::InfiniteFuture());
  EXPECT_FALSE(IsAlive(child->pid()));
  EXPECT_THAT(ChildrenOf(getpid()), ElementsAre());
  EXPECT_THAT(CommandLine(getpid()), HasSubstr("proc_fs_test"));
}

}  // namespace
}  // namespace psring
