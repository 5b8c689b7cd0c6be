// Filters on real ports, and tokens by a clock of the test's own.
#include "common/net/accept_limiter.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <set>
#include <string>

#include "common/clock.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

constexpr Time kStart = Time::FromNanos(1'000'000'000);
constexpr PeerNetwork kHere = {.v4 = true, .bits = 0x7f000001};
constexpr PeerNetwork kOther = {.v4 = true, .bits = 0x7f000002};
constexpr absl::Duration kMoment = absl::Milliseconds(50);

// "127.0.0.1" or "::1".
struct Address {
  explicit Address(const std::string& host) {
    auto* const v4 = reinterpret_cast<sockaddr_in*>(&storage);
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(&storage);
    if (host.find(':') == std::string::npos) {
      v4->sin_family = AF_INET;
      EXPECT_EQ(inet_pton(AF_INET, host.c_str(), &v4->sin_addr), 1);
    } else {
      v6->sin6_family = AF_INET6;
      EXPECT_EQ(inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr), 1);
    }
  }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }

  sockaddr_storage storage = {};
  socklen_t size = sizeof(storage);
};

// The kernel completes connections to it; nobody has to accept them.
class Port {
 public:
  explicit Port(const std::string& host = "127.0.0.1") : address_(host) {
    fd_ = socket(address_.storage.ss_family, SOCK_STREAM, 0);
    EXPECT_EQ(bind(fd_, address_.get(), address_.size), 0)
        << std::strerror(errno);
    EXPECT_EQ(listen(fd_, 128), 0);
    getsockname(fd_, address_.get(), &address_.size);
  }
  ~Port() { close(fd_); }
  Port(const Port&) = delete;

  int fd() const { return fd_; }
  Address& address() { return address_; }

 private:
  Address address_;
  int fd_ = -1;
};

// Somebody who connects from `host`, and has done so once the port lets it.
class Caller {
 public:
  explicit Caller(Port& port, const std::string& host = "127.0.0.1") {
    Address from(host);
    fd_ = socket(from.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK, 0);
    EXPECT_EQ(bind(fd_, from.get(), from.size), 0) << std::strerror(errno);
    connect(fd_, port.address().get(), port.address().size);
  }
  ~Caller() { close(fd_); }
  Caller(const Caller&) = delete;

  int fd() const { return fd_; }
  bool IsConnected(absl::Duration patience = absl::ZeroDuration()) const {
    pollfd item = {fd_, POLLOUT, 0};
    poll(&item, 1, static_cast<int>(absl::ToInt64Milliseconds(patience)));
    return item.revents == POLLOUT;
  }

 private:
  int fd_ = -1;
};

class AcceptLimiterTest : public ::testing::Test {
 protected:
  AcceptLimiterTest() { limiter_.Watch(port_.fd()); }

  void TakeAll(const PeerNetwork& from, Time now = kStart) {
    limiter_.TakeToken(from, now);
    limiter_.TakeToken(from, now);
    limiter_.Look(now);
  }
  bool DropsNobody() const { return limiter_.dropped().empty(); }

  Port port_;
  AcceptLimiter limiter_{{.at_once = 2, .per_second = 10}};
};

TEST_F(AcceptLimiterTest, WhoComesWithoutATokenWaitsForOne) {
  limiter_.TakeToken(kHere, kStart);
  limiter_.Look(kStart);
  Caller first(port_);
  EXPECT_TRUE(first.IsConnected(Soon() - Now()));
  EXPECT_EQ(limiter_.Deadline(), Time::InfiniteFuture());
  limiter_.TakeToken(kHere, kStart);
  limiter_.Look(kStart);
  EXPECT_EQ(limiter_.dropped(), std::set{kHere});
  Caller second(port_);
  limiter_.Look(kStart + absl::Milliseconds(99));
  EXPECT_FALSE(second.IsConnected(kMoment));
  EXPECT_TRUE(first.IsConnected());
  limiter_.Look(limiter_.Deadline() + absl::Milliseconds(1));
  EXPECT_TRUE(DropsNobody());
  // The kernel asks again after a second.
  EXPECT_TRUE(second.IsConnected(Soon() - Now()));
  EXPECT_EQ(limiter_.error(), 0);
}

TEST_F(AcceptLimiterTest, OtherAddressesNoticeNothing) {
  Port v6("::1");
  limiter_.Watch(v6.fd());
  TakeAll(kHere);
  EXPECT_FALSE(Caller(port_, "127.0.0.1").IsConnected(kMoment));
  EXPECT_TRUE(Caller(port_, "127.0.0.2").IsConnected(Soon() - Now()));
  EXPECT_TRUE(Caller(v6, "::1").IsConnected(Soon() - Now()));
  TakeAll(kOther);
  TakeAll({.v4 = false, .bits = 0});  // ::/64
  EXPECT_FALSE(Caller(port_, "127.0.0.1").IsConnected(kMoment));
  EXPECT_FALSE(Caller(port_, "127.0.0.2").IsConnected(kMoment));
  EXPECT_TRUE(Caller(port_, "127.0.0.3").IsConnected(Soon() - Now()));
  EXPECT_FALSE(Caller(v6, "::1").IsConnected(kMoment));
  EXPECT_EQ(limiter_.error(), 0);
}

// A filter has room for so many: the rest is not limited.
TEST_F(AcceptLimiterTest, DropsRequestsFrom32AddressesAtOnce) {
  for (uint64_t i = 1; i < 32; ++i) TakeAll({.v4 = true, .bits = i});
  TakeAll(kHere);
  TakeAll(kOther);
  EXPECT_EQ(limiter_.error(), 0);
  EXPECT_FALSE(Caller(port_, "127.0.0.1").IsConnected(kMoment));
  EXPECT_TRUE(Caller(port_, "127.0.0.2").IsConnected(Soon() - Now()));
  limiter_.Look(kStart + absl::Seconds(1));
  EXPECT_TRUE(DropsNobody());
  EXPECT_TRUE(Caller(port_).IsConnected(Soon() - Now()));
}

TEST_F(AcceptLimiterTest, AFilterOfAnyKindFits) {
  for (uint64_t i = 1; i <= 100; ++i) {
    TakeAll({.v4 = false, .bits = i << 32 | i});
    EXPECT_EQ(limiter_.error(), 0) << i;
  }
}

// What was accepted before the limiter looked is made good by a longer wait,
// within limits.
TEST_F(AcceptLimiterTest, WhoTookMoreWaitsLonger) {
  TakeAll(kHere);
  limiter_.TakeToken(kHere, kStart);
  EXPECT_GE(limiter_.Deadline(), kStart + absl::Milliseconds(199));
  for (int i = 0; i < 100; ++i) limiter_.TakeToken(kHere, kStart);
  EXPECT_LE(limiter_.Deadline(), kStart + absl::Milliseconds(301));
  const Time later = kStart + absl::Hours(1);
  limiter_.Look(later);
  EXPECT_TRUE(DropsNobody());
  TakeAll(kHere, later);  // there are no more of them for having waited longer
  EXPECT_FALSE(DropsNobody());
}

TEST_F(AcceptLimiterTest, LimitersOfOneProcessShareTheLimits) {
  limiter_.ShareAmong(2);
  limiter_.TakeToken(kHere, kStart);
  limiter_.Look(kStart);
  EXPECT_FALSE(DropsNobody());
  EXPECT_EQ(limiter_.Deadline(), kStart + absl::Milliseconds(100));
}

TEST_F(AcceptLimiterTest, WhoShowsWhoItIsCostsNothing) {
  for (int i = 0; i < 100; ++i) {
    limiter_.TakeToken(kHere, kStart);
    limiter_.GiveBack(kHere, kStart);
    limiter_.Look(kStart);
    EXPECT_TRUE(DropsNobody());
  }
  TakeAll(kHere);
  EXPECT_FALSE(DropsNobody());
  limiter_.GiveBack(kHere, kStart);
  limiter_.Look(kStart);
  EXPECT_TRUE(DropsNobody());
}

TEST_F(AcceptLimiterTest, CoversAllPortsAndThoseThatComeLater) {
  Port other;
  limiter_.Watch(other.fd());
  TakeAll(kHere);
  Port later;
  limiter_.Watch(later.fd());
  limiter_.Look(kStart);
  for (Port* port : {&port_, &other, &later}) {
    EXPECT_FALSE(Caller(*port).IsConnected(kMoment));
  }
}

// ZeroMQ closes a listener, and gets its number for something else.
TEST_F(AcceptLimiterTest, LeavesOtherSocketsAlone) {
  auto closed = std::make_unique<Port>();
  const int number = closed->fd();
  limiter_.Watch(number);
  closed.reset();
  Port other;
  ASSERT_EQ(other.fd(), number);
  TakeAll(kHere);
  EXPECT_TRUE(Caller(other).IsConnected(Soon() - Now()));
}

TEST_F(AcceptLimiterTest, SaysWhereTheKernelRefusesItsFilter) {
  auto locked = std::make_unique<Port>();
  const int yes = 1;
  ASSERT_EQ(
      setsockopt(locked->fd(), SOL_SOCKET, SO_LOCK_FILTER, &yes, sizeof(yes)),
      0);
  limiter_.Watch(locked->fd());
  TakeAll(kHere);
  EXPECT_EQ(limiter_.error(), EPERM);
  locked.reset();
  limiter_.Look(kStart);  // tries again
  EXPECT_EQ(limiter_.error(), 0);
}

// It may look late, when many others have come whose buckets it knows.
TEST_F(AcceptLimiterTest, ManyAddressesDoNotHideOneThatItDrops) {
  TakeAll(kHere);
  const Time later = kStart + absl::Hours(1);
  for (uint64_t i = 1; i <= 200; ++i) {
    limiter_.TakeToken({.v4 = true, .bits = i}, later);
  }
  EXPECT_LT(limiter_.Deadline(), later);
  limiter_.Look(later);
  EXPECT_TRUE(DropsNobody());
}

TEST(PeerNetwork, IsAnAddressOrTheFirstHalfOfOne) {
  Port v4("127.0.0.1"), v6("::1");
  EXPECT_EQ(NetworkOf(Caller(v4, "127.0.0.2").fd()), kHere);
  EXPECT_EQ(NetworkOf(accept(v4.fd(), nullptr, nullptr)), kOther);
  EXPECT_EQ(NetworkOf(Caller(v6, "::1").fd()),
            (PeerNetwork{.v4 = false, .bits = 0}));
  EXPECT_EQ(NetworkOf(v4.fd()), std::nullopt);
  EXPECT_EQ(NetworkOf(-1), std::nullopt);
  EXPECT_EQ(Text(kOther), "127.0.0.2");
  EXPECT_EQ(Text({.v4 = false, .bits = 0x20010db8'00000001}),
            "2001:db8:0:1::/64");
}

TEST(PeerNetwork, OfAPeerThatHasHungUp) {
  for (const char* host : {"127.0.0.1", "::1"}) {
    Port port(host);
    auto caller = std::make_unique<Caller>(port, host);
    const linger reset = {1, 0};
    setsockopt(caller->fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    const int accepted = accept(port.fd(), nullptr, nullptr);
    const auto before = NetworkOf(accepted);
    caller.reset();
    pollfd item = {accepted, POLLIN, 0};
    EXPECT_EQ(poll(&item, 1, 10'000), 1);
    EXPECT_TRUE(before.has_value());
    EXPECT_EQ(NetworkOf(accepted), before);
    EXPECT_EQ(LocalPort(accepted), LocalPort(port.fd()));
    EXPECT_GT(LocalPort(accepted), 0);
    close(accepted);
  }
  EXPECT_EQ(LocalPort(-1), 0);
}

// An IPv6 socket shows IPv4 peers in an IPv6 address.
TEST(PeerNetwork, OfAnIpv4PeerOfAnIpv6Port) {
  Port port("::");
  Address there("127.0.0.1");
  reinterpret_cast<sockaddr_in*>(&there.storage)->sin_port =
      reinterpret_cast<sockaddr_in6*>(&port.address().storage)->sin6_port;
  const int caller = socket(AF_INET, SOCK_STREAM, 0);
  ASSERT_EQ(connect(caller, there.get(), sizeof(sockaddr_in)), 0);
  const int accepted = accept(port.fd(), nullptr, nullptr);
  EXPECT_EQ(NetworkOf(accepted), kHere);
  close(accepted);
  AcceptLimiter limiter({.at_once = 1, .per_second = 1});
  limiter.Watch(port.fd());
  limiter.TakeToken(kHere, kStart);
  limiter.Look(kStart);
  const int second = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
  connect(second, there.get(), sizeof(sockaddr_in));
  pollfd item = {second, POLLOUT, 0};
  EXPECT_EQ(poll(&item, 1, /*timeout ms=*/50), 0);
  close(second);
  close(caller);
}

}  // namespace
}  // namespace psring
