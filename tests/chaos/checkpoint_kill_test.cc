// A process that dies, or whose disk fails, at each system call of a save in
// turn. This process traces it: no call is left out, whoever makes it.
#include <errno.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.h"
#include "tests/testing/test_directory.h"
#include "worker/checkpoint.h"
#include "worker/checkpoint_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;

// What becomes of the call that is the `at`-th.
enum class Fault { kKill, kError };

constexpr long kDiskCalls[] = {SYS_openat, SYS_pwrite64,   SYS_pread64,
                               SYS_fsync,  SYS_ftruncate,  SYS_mkdir,
                               SYS_rename, SYS_getdents64, SYS_unlinkat};

bool IsDiskCall(const user_regs_struct& registers) {
  return std::find(std::begin(kDiskCalls), std::end(kDiskCalls),
                   static_cast<long>(registers.orig_rax)) !=
         std::end(kDiskCalls);
}

// Lets the traced process run to its next entry into a call or return from one;
// false when it has ended, as `status` tells.
bool RunToStop(pid_t pid, int* status) {
  if (ptrace(PTRACE_SYSCALL, pid, nullptr, nullptr) != 0) return false;
  if (waitpid(pid, status, 0) != pid) return false;
  return WIFSTOPPED(*status);
}

struct Outcome {
  bool reached = false;  // the call; else the process ended before
  int status = 0;        // as waitpid's
};

// Runs `body` in a process of its own. The `at`-th of its calls (from 0) is the
// last, or fails with EIO; errors come in calls of the disk only.
Outcome RunWithFault(Fault fault, int at, const std::function<int()>& body) {
  const pid_t pid = fork();
  if (pid == 0) {
    ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
    raise(SIGSTOP);
    _exit(body());
  }
  Outcome outcome;
  waitpid(pid, &outcome.status, 0);
  user_regs_struct registers;
  for (int call = 0; RunToStop(pid, &outcome.status);) {
    ptrace(PTRACE_GETREGS, pid, nullptr, &registers);
    const bool counts = fault == Fault::kKill || IsDiskCall(registers);
    const bool now = counts && call == at;
    if (counts) ++call;
    if (now && fault == Fault::kKill) {
      outcome.reached = true;
      kill(pid, SIGKILL);
      waitpid(pid, &outcome.status, 0);
      return outcome;
    }
    if (now) {  // no call of this number, whose error becomes EIO
      outcome.reached = true;
      registers.orig_rax = static_cast<unsigned long long>(-1);
      ptrace(PTRACE_SETREGS, pid, nullptr, &registers);
    }
    if (!RunToStop(pid, &outcome.status)) break;
    if (now) {
      ptrace(PTRACE_GETREGS, pid, nullptr, &registers);
      registers.rax = static_cast<unsigned long long>(-EIO);
      ptrace(PTRACE_SETREGS, pid, nullptr, &registers);
    }
  }
  return outcome;
}

class CheckpointKillTest : public ::testing::Test {
 protected:
  CheckpointKillTest() {
    proto::TensorShape shape;
    shape.set_name("w");
    shape.add_shape(40);
    layout_ = *Layout::Create({shape}, 1 << 20);
    values_.assign(layout_->num_elements(), 1.5f);
  }

  absl::Status Write(int64_t step) {
    Progress progress;
    progress.step = step;
    const CheckpointContents contents{.progress = progress,
                                      .layout = *layout_,
                                      .slot_names = {"momentum_buffer"},
                                      .extras = {}};
    return WriteCheckpoint(directory_, contents, [&](const std::string& dir) {
      const float* slot = values_.data();
      return WriteStateRange(dir, *layout_, contents.slot_names,
                             {0, layout_->num_elements()}, values_.data(),
                             {slot});
    });
  }

  // What rank 0 does from its start to its second checkpoint.
  int Save() {
    const auto lock = CheckpointLock::Take(directory_, true, "a job", Now());
    if (!lock.ok() || !Write(6).ok()) return 1;
    RemoveOldCheckpoints(directory_, 6, 1);
    return 0;
  }

  void Reset() {
    fs::remove_all(directory_);
    fs::create_directories(directory_);
    fs::create_directories(directory_ + "/.incomplete-step-00000004");
    ASSERT_TRUE(Write(5).ok());
  }

  // Every checkpoint is whole, and there is one.
  void ExpectWhole() {
    const auto present = CheckpointsIn(directory_);
    ASSERT_TRUE(present.ok()) << present.status();
    EXPECT_FALSE(present->empty());
    for (const CheckpointEntry& entry : *present) {
      const auto progress = VerifyCheckpoint(entry.path);
      EXPECT_TRUE(progress.ok()) << progress.status();
      EXPECT_EQ(progress.ok() ? progress->step : -1, entry.step);
    }
  }

  // The next job clears up what is left, and writes.
  void ExpectTheNextJobWorks() {
    const auto lock =
        CheckpointLock::Take(directory_, true, "the next job", Now());
    ASSERT_TRUE(lock.ok()) << lock.status();
    ASSERT_TRUE(Write(7).ok());
    RemoveOldCheckpoints(directory_, 7, 1);
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(directory_)) {
      names.push_back(entry.path().filename());
    }
    EXPECT_THAT(names,
                ::testing::UnorderedElementsAre(".lock", "step-00000007"));
  }

  const std::string directory_ = testing::TestDirectory() + "/checkpoints";
  std::optional<Layout> layout_;
  std::vector<float> values_;
};

TEST_F(CheckpointKillTest, AProcessThatDiesAtAnyCallLeavesWholeCheckpoints) {
  int at = 0;
  while (true) {
    ASSERT_NO_FATAL_FAILURE(Reset());
    const Outcome outcome =
        RunWithFault(Fault::kKill, at, [this] { return Save(); });
    SCOPED_TRACE(::testing::Message() << "killed at call " << at);
    ExpectWhole();
    if (!outcome.reached) {
      EXPECT_TRUE(WIFEXITED(outcome.status));
      EXPECT_EQ(WEXITSTATUS(outcome.status), 0);
      break;
    }
    ExpectTheNextJobWorks();
    if (HasFailure()) break;
    ++at;
  }
  EXPECT_GT(at, 50);  // all of them
}

TEST_F(CheckpointKillTest, ADiskThatFailsAtAnyCallLeavesWholeCheckpoints) {
  int at = 0;
  int failed = 0;
  while (true) {
    ASSERT_NO_FATAL_FAILURE(Reset());
    const Outcome outcome =
        RunWithFault(Fault::kError, at, [this] { return Save(); });
    SCOPED_TRACE(::testing::Message() << "failed at call " << at);
    ASSERT_TRUE(WIFEXITED(outcome.status)) << outcome.status;
    ExpectWhole();
    if (WEXITSTATUS(outcome.status) == 0) {
      EXPECT_TRUE(VerifyCheckpoint(directory_ + "/step-00000006").ok());
    } else {
      ++failed;
    }
    if (!outcome.reached) break;
    ExpectTheNextJobWorks();
    if (HasFailure()) break;
    ++at;
  }
  EXPECT_GT(failed, 15);
}

}  // namespace
}  // namespace psring
