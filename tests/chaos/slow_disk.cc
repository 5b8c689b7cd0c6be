// Preloaded into a process (LD_PRELOAD), lets it use a slow disk: what it makes
// durable with fsync takes PSRING_SLOW_DISK milliseconds longer, and each read
// of a checkpoint's tensors PSRING_SLOW_READS. Says at the process's end how
// often that was.
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<int> times{0};

void Slow(const char* variable) {
  const char* text = std::getenv(variable);
  const long long ms = text == nullptr ? 0 : std::atoll(text);
  if (ms == 0) return;
  ++times;
  const timespec wait = {ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&wait, nullptr);
}

bool HoldsTensors(int fd) {
  char link[64], path[4096];
  std::snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  path[size < 0 ? 0 : size] = 0;
  return std::strstr(path, ".safetensors") != nullptr;
}

ssize_t Read(int fd, void* data, size_t size, int64_t offset) {
  if (HoldsTensors(fd)) Slow("PSRING_SLOW_READS");
  return syscall(SYS_pread64, fd, data, size, offset);
}

__attribute__((destructor)) void Tell() {
  std::fprintf(stderr, "the disk was slow %d times\n", times.load());
}

}  // namespace

extern "C" {

int fsync(int fd) {
  Slow("PSRING_SLOW_DISK");
  return static_cast<int>(syscall(SYS_fsync, fd));
}

ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  return Read(fd, data, size, offset);
}

ssize_t pread64(int fd, void* data, size_t size, off64_t offset) {
  return Read(fd, data, size, offset);
}

}  // extern "C"
