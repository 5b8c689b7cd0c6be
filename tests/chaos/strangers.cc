#include "tests/chaos/strangers.h"

#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "common/clock.h"

namespace psring {
namespace {

constexpr absl::Duration kComeAgain = absl::Milliseconds(1);
// Some at a time: a queue of connections is short.
constexpr int64_t kAtOnce = 64;
// Whose request for a connection is not answered soon makes another: the kernel
// would only ask again after a second.
constexpr absl::Duration kPatience = absl::Milliseconds(50);
// What their own kernel holds for each of them. Left to itself, it would hold
// megabytes, and on this machine it is the job's core that frees them when the
// connection is reset: elsewhere, that would be the strangers' own.
constexpr int kUnsentBytes = 1 << 17;

// Does not wait until it is connected.
int Connect(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &kUnsentBytes, sizeof(kUnsentBytes));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  return fd;
}

void KeepTo(const cpu_set_t& cores) {
  sched_setaffinity(/*this thread*/ 0, sizeof(cores), &cores);
}

}  // namespace

void LeaveCoreToStrangers() {
  cpu_set_t cores;
  sched_getaffinity(0, sizeof(cores), &cores);
  CPU_CLR(0, &cores);
  if (CPU_COUNT(&cores) > 0) KeepTo(cores);
}

struct Strangers::Stranger {
  int fd = -1;
  Time since;
  bool connected = false;
  std::string opening;
  size_t said = 0;  // of the opening
  size_t sung = 0;  // of the refrain
  size_t heard = 0;
  Time next;
};

Strangers::Strangers(int port, size_t crowd, Speech speech)
    : port_(port),
      crowd_(crowd),
      speech_(std::move(speech)),
      thread_([this] { Run(); }) {}

Strangers::~Strangers() {
  stop_ = true;
  thread_.join();
}

bool Strangers::Speak(Stranger& stranger) {
  const bool opening = stranger.said < stranger.opening.size();
  if (!opening && stranger.heard < speech_.awaits) return true;
  const std::string& text = opening ? stranger.opening : speech_.refrain;
  size_t& done = opening ? stranger.said : stranger.sung;
  if (text.empty() || Now() < stranger.next) return true;
  const bool slow = opening && speech_.pause > absl::ZeroDuration();
  const size_t size = slow ? 1 : text.size() - done;
  const ssize_t sent =
      send(stranger.fd, text.data() + done, size, MSG_NOSIGNAL);
  if (sent < 0) return errno == EAGAIN;
  bytes_ += sent;
  done += sent;
  if (!opening) done %= text.size();
  if (slow) stranger.next = Now() + speech_.pause;
  return true;
}

short Strangers::Awaited(const Stranger& stranger) const {
  if (!stranger.connected) return POLLIN | POLLOUT;
  const bool silent =
      stranger.said == stranger.opening.size() &&
      (speech_.refrain.empty() || stranger.heard < speech_.awaits);
  return silent || speech_.pause > absl::ZeroDuration() ? POLLIN
                                                        : POLLIN | POLLOUT;
}

bool Strangers::Attend(Stranger& stranger, short events) {
  if ((events & (POLLERR | POLLHUP)) != 0) return false;
  if (!stranger.connected) {
    if (events == 0) return Now() < stranger.since + kPatience;
    stranger.connected = true;
    ++connections_;
    if (speech_.leaves) {
      const linger reset = {.l_onoff = 1, .l_linger = 0};
      setsockopt(stranger.fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
      return false;
    }
  }
  if ((events & POLLIN) != 0) {
    char unread[1 << 12];
    const ssize_t heard = recv(stranger.fd, unread, sizeof(unread), 0);
    if (heard <= 0) return false;
    stranger.heard += static_cast<size_t>(heard);
  }
  return Speak(stranger);
}

void Strangers::Run() {
  cpu_set_t first;
  CPU_ZERO(&first);
  CPU_SET(0, &first);
  KeepTo(first);
  std::vector<Stranger> strangers;
  std::vector<pollfd> items;
  int64_t may_come = static_cast<int64_t>(crowd_);
  Time last = Now();
  while (!stop_) {
    // Who stays does not make others come more often later.
    const int64_t more = (Now() - last) / kComeAgain;
    last += more * kComeAgain;
    may_come = std::max(may_come, std::min(may_come + more, kAtOnce));
    for (int64_t i = 0;
         i < kAtOnce && may_come > 0 && strangers.size() < crowd_; ++i) {
      --may_come;
      Stranger stranger;
      stranger.fd = Connect(port_);
      if (stranger.fd < 0) break;
      stranger.since = Now();
      stranger.opening = speech_.opening();
      ++requests_;
      strangers.push_back(std::move(stranger));
    }
    items.clear();
    for (const Stranger& stranger : strangers) {
      items.push_back({stranger.fd, Awaited(stranger), 0});
    }
    poll(items.data(), items.size(), /*timeout ms=*/5);
    for (size_t i = 0; i < items.size(); ++i) {
      if (Attend(strangers[i], items[i].revents)) continue;
      close(strangers[i].fd);
      strangers[i].fd = -1;
    }
    strangers.erase(std::remove_if(strangers.begin(), strangers.end(),
                                   [](const Stranger& s) { return s.fd < 0; }),
                    strangers.end());
  }
  for (const Stranger& stranger : strangers) close(stranger.fd);
}

}  // namespace psring
