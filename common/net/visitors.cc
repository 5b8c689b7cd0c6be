#include "common/net/visitors.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <iterator>
#include <optional>

#include "common/net/socket_cookie.h"

namespace psring {
namespace {

struct Traffic {
  int64_t received = 0;
  int64_t acknowledged = 0;  // of what this process has sent
};

// Nothing: no TCP connection, or a kernel that does not tell.
std::optional<Traffic> TrafficOf(int fd) {
  tcp_info info = {};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 ||
      size < offsetof(tcp_info, tcpi_bytes_received) +
                 sizeof(info.tcpi_bytes_received)) {
    return std::nullopt;
  }
  return Traffic{static_cast<int64_t>(info.tcpi_bytes_received),
                 static_cast<int64_t>(info.tcpi_bytes_acked)};
}

// Ends the connection, and drops what either side has not read: after a
// shutdown() the kernel would hold that for as long as the peer likes.
void Reset(int fd) {
  sockaddr nobody = {};
  nobody.sa_family = AF_UNSPEC;
  connect(fd, &nobody, sizeof(nobody));
}

}  // namespace

Visitors::Visitors(const Limits& limits)
    : limits_(limits), epoll_fd_(epoll_create1(EPOLL_CLOEXEC)) {}

Visitors::~Visitors() { close(epoll_fd_); }

bool Visitors::Arrive(int fd, const PeerNetwork& from, int64_t proof_bytes,
                      Time now) {
  const auto cookie = SocketCookie(fd);
  if (!cookie.has_value()) return false;
  // Announced before, by the event of one that had the same descriptor and is
  // closed.
  if (std::exchange(newest_[fd], *cookie) == *cookie) return false;
  if (expected_.erase(*cookie) > 0) {
    shown_.push_back(from);
    return true;
  }
  // What has come already counts as news.
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLET;
  event.data.u64 = *cookie;
  if (epoll_ctl(epoll_fd_, EPOLL_CTL_ADD, fd, &event) != 0 &&
      (errno != EEXIST ||
       epoll_ctl(epoll_fd_, EPOLL_CTL_MOD, fd, &event) != 0)) {
    // Nobody would see what it says.
    counts_.crowd += OnSocket(fd, *cookie, Reset);
    return true;
  }
  visitors_[*cookie] = {fd, from, proof_bytes, now};
  queue_.push_back(*cookie);
  while (visitors_.size() > limits_.connections) {
    const uint64_t oldest = Oldest();
    if (LookAt(oldest, now)) CutOff(oldest, counts_.crowd);
  }
  return true;
}

void Visitors::Vouch(uint64_t cookie) {
  if (visitors_.contains(cookie)) {
    ShowIn(cookie);
  } else {
    expected_.insert(cookie);
  }
}

// ZeroMQ may have closed the descriptor and got the same for another
// connection.
bool Visitors::LookAt(uint64_t cookie, Time now) {
  const auto found = visitors_.find(cookie);
  if (found == visitors_.end()) return false;
  const Visitor& visitor = found->second;
  const auto traffic = TrafficOf(visitor.fd);
  if (!traffic.has_value() || SocketCookie(visitor.fd) != cookie) {
    visitors_.erase(found);
    return false;
  }
  if (visitor.proof_bytes > 0 && traffic->acknowledged > visitor.proof_bytes) {
    ShowIn(cookie);
    return false;
  }
  const bool much = traffic->received > limits_.bytes;
  if (!much && now - visitor.since <= limits_.time) return true;
  CutOff(cookie, much ? counts_.bytes : counts_.time);
  return false;
}

void Visitors::ShowIn(uint64_t cookie) {
  const Visitor& visitor = visitors_.at(cookie);
  shown_.push_back(visitor.from);
  if (SocketCookie(visitor.fd) == cookie) {
    epoll_ctl(epoll_fd_, EPOLL_CTL_DEL, visitor.fd, nullptr);
  }
  visitors_.erase(cookie);
}

void Visitors::CutOff(uint64_t cookie, int64_t& count) {
  count += OnSocket(visitors_.at(cookie).fd, cookie, Reset);
  visitors_.erase(cookie);
}

uint64_t Visitors::Oldest() {
  while (!visitors_.contains(queue_.front())) queue_.pop_front();
  return queue_.front();
}

Time Visitors::Deadline() {
  return visitors_.empty() ? Time::InfiniteFuture()
                           : visitors_.at(Oldest()).since + limits_.time;
}

void Visitors::Look(Time now) {
  epoll_event events[256];
  const int size =
      epoll_wait(epoll_fd_, events, std::size(events), /*timeout ms=*/0);
  for (int i = 0; i < size; ++i) LookAt(events[i].data.u64, now);
  while (Deadline() < now) LookAt(Oldest(), now);
  if (visitors_.empty()) queue_.clear();
}

}  // namespace psring
