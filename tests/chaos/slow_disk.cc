// Preloaded into a process (LD_PRELOAD), lets it write to a slow disk: what it
// makes durable with fsync takes PSRING_SLOW_DISK milliseconds longer. Says at
// the process's end how often that was.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace {

std::atomic<int> writes{0};

__attribute__((destructor)) void Tell() {
  std::fprintf(stderr, "the disk was slow %d times\n", writes.load());
}

}  // namespace

extern "C" int fsync(int fd) {
  ++writes;
  const char* text = std::getenv("PSRING_SLOW_DISK");
  const long long ms = text == nullptr ? 0 : std::atoll(text);
  const timespec wait = {ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&wait, nullptr);
  return static_cast<int>(syscall(SYS_fsync, fd));
}
