// Preloaded into a process (LD_PRELOAD), cuts its TCP connections now and then,
// and lets nobody connect for a while after that. PSRING_CONNECTION_CUTS, all
// in milliseconds:
//
//   EVERY,DOWN[,one-way]   cuts about every EVERY, for DOWN; one-way: this end
//   goes
//                          on listening, and the other hears that it is over
//
// Says at the process's end how many connections were cut.
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

std::atomic<int64_t> cuts = 0;
std::atomic<bool> down = false;

int every_ms = 0;
int down_ms = 0;
bool one_way = false;

void Sleep(int64_t ms) {
  const timespec time{ms / 1000, ms % 1000 * 1'000'000};
  nanosleep(&time, nullptr);
}

int RealConnect(int fd, const sockaddr* address, socklen_t size) {
  using Connect = int (*)(int, const sockaddr*, socklen_t);
  static const auto real =
      reinterpret_cast<Connect>(dlsym(RTLD_NEXT, "connect"));
  return real(fd, address, size);
}

bool IsStream(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 &&
         type == SOCK_STREAM;
}

bool IsTcpConnection(int fd) {
  sockaddr_storage peer;
  socklen_t size = sizeof(peer);
  return getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 &&
         peer.ss_family == AF_INET && IsStream(fd);
}

// The file descriptor stays its owner's; what it stands for is gone.
void Cut(int fd) {
  if (one_way) {
    shutdown(fd, SHUT_WR);
  } else {
    sockaddr nobody = {};
    nobody.sa_family = AF_UNSPEC;  // a reset
    RealConnect(fd, &nobody, sizeof(nobody));
  }
  ++cuts;
}

void CutAll() {
  DIR* const directory = opendir("/proc/self/fd");
  if (directory == nullptr) return;
  while (const dirent* entry = readdir(directory)) {
    const int fd = std::atoi(entry->d_name);
    if (fd > 2 && IsTcpConnection(fd)) Cut(fd);
  }
  closedir(directory);
}

void* Run(void*) {
  uint32_t seed = static_cast<uint32_t>(getpid());
  while (true) {
    seed = seed * 1664525 + 1013904223;  // not in step with other processes
    Sleep(every_ms / 2 + seed / 65536 % every_ms);
    down = true;
    CutAll();
    Sleep(down_ms);
    down = false;
  }
  return nullptr;
}

__attribute__((constructor)) void Start() {
  const char* text = std::getenv("PSRING_CONNECTION_CUTS");
  if (text == nullptr || std::sscanf(text, "%d,%d", &every_ms, &down_ms) != 2 ||
      every_ms < 1) {
    return;
  }
  one_way = std::strstr(text, "one-way") != nullptr;
  pthread_t thread;
  pthread_create(&thread, nullptr, Run, nullptr);
  pthread_detach(thread);
}

__attribute__((destructor)) void Tell() {
  std::fprintf(stderr, "%lld connections were cut\n",
               static_cast<long long>(cuts.load()));
}

}  // namespace

extern "C" {

int connect(int fd, const sockaddr* address, socklen_t size) {
  // A datagram's asks for the route alone, which stays.
  if (down && address->sa_family == AF_INET && IsStream(fd)) {
    errno = ECONNREFUSED;
    return -1;
  }
  return RealConnect(fd, address, size);
}

}  // extern "C"
