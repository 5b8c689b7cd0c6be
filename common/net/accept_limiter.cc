#include "common/net/accept_limiter.h"

#include <linux/filter.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "common/net/socket_cookie.h"

namespace psring {
namespace {

// It accepts again when the bucket holds the tokens of so long: with fewer, it
// would soon stop again.
constexpr double kResumeSeconds = 0.1;

// The kernel compares every request with the list, and bounds its memory
// (optmem_max). Requests from further addresses are not dropped; so many at
// once would need tens of thousands of connections per second.
constexpr size_t kMaxListed = 32;

// A filter runs over a packet from its TCP header (RFC 9293) on, and reaches
// the IP header before it (RFC 791, RFC 8200) at SKF_NET_OFF.
constexpr uint32_t kFlags = 13, kSyn = 2;
constexpr uint32_t kVersion = SKF_NET_OFF;
constexpr uint32_t kSource4 = SKF_NET_OFF + 12;
constexpr uint32_t kSource6 = SKF_NET_OFF + 8;

using Program = std::vector<sock_filter>;

sock_filter Drop() { return BPF_STMT(BPF_RET | BPF_K, 0); }
sock_filter Pass() { return BPF_STMT(BPF_RET | BPF_K, ~0U); }
sock_filter LoadByte(uint32_t at) {
  return BPF_STMT(BPF_LD | BPF_B | BPF_ABS, at);
}
sock_filter LoadWord(uint32_t at) {
  return BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at);
}
// Continues with the next instruction if the loaded value is `value`.
sock_filter UnlessSkip(uint32_t value, uint8_t instructions) {
  return BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, instructions);
}

// Drops requests for a connection from `dropped`.
Program FilterOf(const std::set<PeerNetwork>& dropped) {
  Program program = {LoadByte(kFlags),
                     BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, kSyn, 1, 0), Pass()};
  Program v4 = {LoadWord(kSource4)}, v6;
  size_t listed = 0;
  for (const PeerNetwork& network : dropped) {
    if (++listed > kMaxListed) break;
    const auto low = static_cast<uint32_t>(network.bits);
    if (network.v4) {
      v4.insert(v4.end(), {UnlessSkip(low, 1), Drop()});
    } else {
      const auto high = static_cast<uint32_t>(network.bits >> 32);
      v6.insert(v6.end(), {LoadWord(kSource6), UnlessSkip(high, 3),
                           LoadWord(kSource6 + 4), UnlessSkip(low, 1), Drop()});
    }
  }
  v4.push_back(Pass());
  v6.push_back(Pass());
  program.insert(program.end(),
                 {LoadByte(kVersion), BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 4),
                  UnlessSkip(4, static_cast<uint8_t>(v4.size()))});
  program.insert(program.end(), v4.begin(), v4.end());
  program.insert(program.end(), v6.begin(), v6.end());
  return program;
}

// Makes the listening socket `fd` drop requests from them; an errno, or 0. A
// connection that is accepted meanwhile inherits the filter and keeps it: that
// costs some instructions for each of its packets, and drops none.
int Filter(int fd, const std::set<PeerNetwork>& dropped) {
  if (dropped.empty()) {
    const int none = 0;
    const int set =
        setsockopt(fd, SOL_SOCKET, SO_DETACH_FILTER, &none, sizeof(none));
    return set == 0 || errno == ENOENT ? 0 : errno;  // ENOENT: it had none
  }
  Program filter = FilterOf(dropped);
  const sock_fprog program = {.len = static_cast<unsigned short>(filter.size()),
                              .filter = filter.data()};
  const int set =
      setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program));
  return set == 0 ? 0 : errno;
}

}  // namespace

bool AcceptLimiter::Listener::IsOpen() const {
  return SocketCookie(fd) == cookie;
}

void AcceptLimiter::Watch(int fd) {
  std::erase_if(listeners_, [](const Listener& l) { return !l.IsOpen(); });
  const auto cookie = SocketCookie(fd);
  if (!cookie.has_value()) return;
  listeners_.push_back({fd, *cookie});
  filters_are_set_ &= dropped_.empty();
}

void AcceptLimiter::ShareAmong(size_t limiters) {
  sharers_ = static_cast<double>(std::max<size_t>(limiters, 1));
}

double AcceptLimiter::TokensIn(const Bucket& bucket, Time now) const {
  const double back =
      absl::ToDoubleSeconds(now - bucket.filled_at) * PerSecond();
  return std::min(bucket.tokens + back, AtOnce());
}

// A debt ends: some may have come that no filter could keep away.
void AcceptLimiter::Add(double tokens, Bucket& bucket, Time now) {
  bucket = {std::max(TokensIn(bucket, now) + tokens, -AtOnce()), now};
}

void AcceptLimiter::ForgetFullBuckets(Time now) {
  std::erase_if(buckets_, [this, now](const auto& entry) {
    return TokensIn(entry.second, now) >= AtOnce() &&
           !dropped_.contains(entry.first);
  });
  forget_at_ = std::max<size_t>(64, 2 * buckets_.size());
}

void AcceptLimiter::TakeToken(const PeerNetwork& from, Time now) {
  if (buckets_.size() >= forget_at_) ForgetFullBuckets(now);
  Bucket& bucket =
      buckets_.try_emplace(from, Bucket{AtOnce(), now}).first->second;
  Add(-1, bucket, now);
  if (bucket.tokens < 1) filters_are_set_ &= !dropped_.insert(from).second;
}

void AcceptLimiter::GiveBack(const PeerNetwork& to, Time now) {
  const auto found = buckets_.find(to);
  if (found == buckets_.end()) return;
  Add(+1, found->second, now);
}

void AcceptLimiter::Look(Time now) {
  const size_t resumed =
      std::erase_if(dropped_, [this, now](const PeerNetwork& network) {
        return TokensIn(buckets_.at(network), now) >=
               kResumeSeconds * PerSecond();
      });
  if (resumed > 0 || !filters_are_set_) SetFilters();
}

Time AcceptLimiter::Deadline() const {
  Time deadline = Time::InfiniteFuture();
  for (const PeerNetwork& network : dropped_) {
    const Bucket& bucket = buckets_.at(network);
    const double seconds = kResumeSeconds - bucket.tokens / PerSecond();
    deadline = std::min(
        deadline, bucket.filled_at + absl::Seconds(std::max(seconds, 0.0)));
  }
  return deadline;
}

void AcceptLimiter::SetFilters() {
  error_ = 0;
  for (const Listener& listener : listeners_) {
    // ZeroMQ closes a listener before it is forgotten here.
    OnSocket(listener.fd, listener.cookie, [this](int fd) {
      if (const int error = Filter(fd, dropped_); error != 0) error_ = error;
    });
  }
  filters_are_set_ = error_ == 0;
}

}  // namespace psring
