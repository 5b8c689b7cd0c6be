// Preloaded into a process (LD_PRELOAD), lets its wall clock jump: an hour
// ahead, an hour back, and right again, in turn, every PSRING_CLOCK_JUMPS
// milliseconds. Says at the process's end how often it did. The monotonic clock
// is left alone, as an administrator or NTP leaves it.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr int64_t kHour = 3600;
constexpr int64_t kMillion = 1'000'000;

int Real(clockid_t clock, timespec* time) {
  return static_cast<int>(syscall(SYS_clock_gettime, clock, time));
}

int64_t Milliseconds() {
  timespec now;
  Real(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000 + now.tv_nsec / kMillion;
}

int64_t Interval() {
  const char* text = std::getenv("PSRING_CLOCK_JUMPS");
  const int64_t ms = text == nullptr ? 0 : std::atoll(text);
  return ms > 0 ? ms : kHour * 1000;
}

// May be called before variables outside of functions have been initialised.
int64_t Jumps() {
  static const int64_t start = Milliseconds();
  static const int64_t interval = Interval();
  return (Milliseconds() - start) / interval;
}

int64_t Offset() {
  constexpr int64_t kOffsets[] = {0, kHour, -kHour};
  return kOffsets[Jumps() % 3];
}

__attribute__((destructor)) void Tell() {
  std::fprintf(stderr, "the wall clock jumped %lld times\n",
               static_cast<long long>(Jumps()));
}

}  // namespace

extern "C" {

int clock_gettime(clockid_t clock, timespec* time) {
  const int result = Real(clock, time);
  if (result == 0 &&
      (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
    time->tv_sec += Offset();
  }
  return result;
}

int gettimeofday(timeval* time, void*) {
  timespec now;
  const int result = clock_gettime(CLOCK_REALTIME, &now);
  time->tv_sec = now.tv_sec;
  time->tv_usec = now.tv_nsec / 1000;
  return result;
}

time_t time(time_t* out) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

}  // extern "C"
