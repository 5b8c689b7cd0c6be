#include "common/process/standard_files.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace psring {
namespace {

bool IsNull(int fd) {
  struct stat file = {};
  struct stat null = {};
  return fstat(fd, &file) == 0 && stat("/dev/null", &null) == 0 &&
         file.st_rdev == null.st_rdev && S_ISCHR(file.st_mode);
}

// Whether `check` holds in a process of its own, whose files are its own too.
template <typename Check>
bool HoldsInAChild(Check check) {
  const pid_t pid = fork();
  if (pid == 0) _exit(check() ? 0 : 1);
  int status = -1;
  waitpid(pid, &status, 0);
  return status == 0;
}

TEST(OpenStandardFiles, TakesThePlacesOfThoseThatAreClosed) {
  EXPECT_TRUE(HoldsInAChild([] {
    close(STDIN_FILENO);
    close(STDERR_FILENO);
    OpenStandardFiles();
    return IsNull(STDIN_FILENO) && IsNull(STDERR_FILENO) &&
           write(STDERR_FILENO, "x", 1) == 1;
  }));
}

TEST(OpenStandardFiles, LeavesThoseThatAreOpen) {
  EXPECT_TRUE(HoldsInAChild([] {
    int pipes[2];
    if (pipe(pipes) != 0) return false;
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) dup2(pipes[1], fd);
    OpenStandardFiles();
    return !IsNull(STDIN_FILENO) && !IsNull(STDOUT_FILENO) &&
           !IsNull(STDERR_FILENO);
  }));
}

}  // namespace
}  // namespace psring
