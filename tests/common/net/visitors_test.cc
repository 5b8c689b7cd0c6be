// Limits on real connections.
#include "common/net/visitors.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/net/socket_cookie.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

constexpr Time kStart = Time::FromNanos(1'000'000'000);
constexpr PeerNetwork kThere = {.v4 = true, .bits = 7};

class File {
 public:
  explicit File(int fd) : fd_(fd) { EXPECT_GE(fd, 0); }
  File(File&& other) : fd_(std::exchange(other.fd_, -1)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

// Both ends of a TCP connection.
struct Connection {
  File stranger;
  File ours;

  void Send(size_t bytes) {
    const std::string text(bytes, 'x');
    ASSERT_EQ(send(stranger.fd(), text.data(), bytes, MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes));
    // The kernel has counted what can be read.
    pollfd item = {ours.fd(), POLLIN, 0};
    ASSERT_EQ(poll(&item, 1, 10'000), 1);
  }

  void Get(size_t bytes) {
    std::string text(bytes, 'x');
    ASSERT_EQ(send(ours.fd(), text.data(), bytes, MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes));
    ASSERT_EQ(recv(stranger.fd(), text.data(), bytes, MSG_WAITALL),
              static_cast<ssize_t>(bytes));
  }

  bool IsCutOff() {
    pollfd item = {ours.fd(), POLLIN | POLLRDHUP, 0};
    poll(&item, 1, 0);
    return (item.revents & (POLLRDHUP | POLLHUP)) != 0;
  }
};

class VisitorsTest : public ::testing::Test {
 protected:
  VisitorsTest() : listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_.fd(), reinterpret_cast<sockaddr*>(&address),
                   sizeof(address)),
              0);
    EXPECT_EQ(listen(listener_.fd(), 8), 0);
  }

  Connection Connect() {
    sockaddr_in address = {};
    socklen_t size = sizeof(address);
    getsockname(listener_.fd(), reinterpret_cast<sockaddr*>(&address), &size);
    File stranger(socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(connect(stranger.fd(), reinterpret_cast<sockaddr*>(&address),
                      sizeof(address)),
              0);
    return {std::move(stranger),
            File(accept(listener_.fd(), nullptr, nullptr))};
  }

  bool HasNews() const {
    pollfd item = {visitors_.fd(), POLLIN, 0};
    return poll(&item, 1, /*timeout ms=*/0) == 1;
  }

  Visitors visitors_{
      {.connections = 2, .bytes = 1000, .time = absl::Seconds(10)}};

 private:
  File listener_;
};

TEST_F(VisitorsTest, WhoSaysTooMuchIsCutOff) {
  Connection quiet = Connect(), loud = Connect();
  visitors_.Arrive(quiet.ours.fd(), kThere, /*proof_bytes=*/0, kStart);
  visitors_.Arrive(loud.ours.fd(), kThere, /*proof_bytes=*/0, kStart);
  quiet.Send(1000);
  loud.Send(1001);
  visitors_.Look(kStart);
  EXPECT_FALSE(quiet.IsCutOff());
  EXPECT_TRUE(loud.IsCutOff());
  EXPECT_EQ(visitors_.counts().bytes, 1);
  EXPECT_EQ(visitors_.counts().all(), 1);
}

TEST_F(VisitorsTest, WhoTakesTooLongIsCutOff) {
  Connection slow = Connect();
  visitors_.Arrive(slow.ours.fd(), kThere, /*proof_bytes=*/100, kStart);
  slow.Send(1);
  visitors_.Look(kStart + absl::Seconds(10));
  EXPECT_FALSE(slow.IsCutOff());
  EXPECT_FALSE(HasNews());  // nobody has read it yet
  visitors_.Look(kStart + absl::Milliseconds(10'001));
  EXPECT_TRUE(slow.IsCutOff());
  EXPECT_EQ(visitors_.counts().time, 1);
  EXPECT_TRUE(visitors_.empty());
}

TEST_F(VisitorsTest, TheOldestMakesRoom) {
  std::vector<Connection> crowd;
  for (int i = 0; i < 3; ++i) {
    crowd.push_back(Connect());
    visitors_.Arrive(crowd.back().ours.fd(), kThere, /*proof_bytes=*/100,
                     kStart);
  }
  EXPECT_TRUE(crowd[0].IsCutOff());
  EXPECT_FALSE(crowd[1].IsCutOff());
  EXPECT_FALSE(crowd[2].IsCutOff());
  EXPECT_EQ(visitors_.counts().crowd, 1);
}

// It has been let in: what it says from now on is the job's.
TEST_F(VisitorsTest, WhoHasGotAProofMayStay) {
  Connection peer = Connect();
  visitors_.Arrive(peer.ours.fd(), kThere, /*proof_bytes=*/100, kStart);
  peer.Get(101);
  peer.Send(5000);
  // The stranger's kernel has acknowledged what it has got a moment later.
  const Time deadline = Soon();
  do {
    visitors_.Look(kStart);
  } while (!visitors_.empty() && Now() < deadline);
  // What it says later wakes nobody.
  peer.Send(1);
  EXPECT_FALSE(HasNews());
  visitors_.Look(kStart + absl::Hours(1));
  EXPECT_FALSE(peer.IsCutOff());
  EXPECT_EQ(visitors_.counts().all(), 0);
  EXPECT_EQ(visitors_.TakeShown(), std::vector{kThere});
}

TEST_F(VisitorsTest, WhoWasRefusedMayNotStay) {
  Connection stranger = Connect();
  visitors_.Arrive(stranger.ours.fd(), kThere, /*proof_bytes=*/100, kStart);
  stranger.Get(100);
  stranger.Send(1001);
  visitors_.Look(kStart);
  EXPECT_TRUE(stranger.IsCutOff());
  EXPECT_EQ(visitors_.TakeShown(), std::vector<PeerNetwork>());
}

// The socket's thread may know it before the connection is told of.
TEST_F(VisitorsTest, WhoIsVouchedForMayStay) {
  Connection later = Connect(), before = Connect();
  visitors_.Vouch(*SocketCookie(before.ours.fd()));
  visitors_.Arrive(before.ours.fd(), kThere, /*proof_bytes=*/0, kStart);
  visitors_.Arrive(later.ours.fd(), kThere, /*proof_bytes=*/0, kStart);
  visitors_.Vouch(*SocketCookie(later.ours.fd()));
  before.Send(5000);
  later.Send(5000);
  visitors_.Look(kStart + absl::Hours(1));
  EXPECT_FALSE(before.IsCutOff());
  EXPECT_FALSE(later.IsCutOff());
  EXPECT_TRUE(visitors_.empty());
  EXPECT_EQ(visitors_.TakeShown(), std::vector({kThere, kThere}));
  EXPECT_EQ(visitors_.TakeShown(), std::vector<PeerNetwork>());
}

// ZeroMQ closes descriptors, and gets the same ones again.
TEST_F(VisitorsTest, WhatHasGoneIsForgotten) {
  Connection next = Connect();
  {
    Connection gone = Connect();
    visitors_.Arrive(gone.ours.fd(), kThere, /*proof_bytes=*/0, kStart);
    ASSERT_EQ(dup2(next.ours.fd(), gone.ours.fd()), gone.ours.fd());
    visitors_.Look(kStart + absl::Hours(1));
  }
  EXPECT_FALSE(next.IsCutOff());
  EXPECT_TRUE(visitors_.empty());
  EXPECT_EQ(visitors_.counts().all(), 0);
}

// It is told of one that has gone when the next has its descriptor already, and
// then of that one.
TEST_F(VisitorsTest, WhoIsToldOfTwiceMayStay) {
  Connection peer = Connect();
  visitors_.Arrive(peer.ours.fd(), kThere, /*proof_bytes=*/0, kStart);
  visitors_.Arrive(peer.ours.fd(), kThere, /*proof_bytes=*/0, kStart);
  EXPECT_FALSE(peer.IsCutOff());
  visitors_.Vouch(*SocketCookie(peer.ours.fd()));
  visitors_.Arrive(peer.ours.fd(), kThere, /*proof_bytes=*/0, kStart);
  Connection early = Connect();
  visitors_.Vouch(*SocketCookie(early.ours.fd()));
  visitors_.Arrive(early.ours.fd(), kThere, /*proof_bytes=*/0, kStart);
  visitors_.Arrive(early.ours.fd(), kThere, /*proof_bytes=*/0, kStart);
  visitors_.Look(kStart + absl::Hours(1));
  EXPECT_FALSE(peer.IsCutOff());
  EXPECT_FALSE(early.IsCutOff());
  EXPECT_EQ(visitors_.counts().all(), 0);
}

// ZeroMQ closes a descriptor, and gets it again, at any moment.
TEST_F(VisitorsTest, WhatIsDoneToASocketIsDoneToNoOther) {
  Connection mine = Connect(), next = Connect();
  const uint64_t cookie = *SocketCookie(mine.ours.fd());
  EXPECT_TRUE(OnSocket(mine.ours.fd(), cookie, [&](int fd) {
    ASSERT_EQ(dup2(next.ours.fd(), mine.ours.fd()), mine.ours.fd());
    EXPECT_EQ(SocketCookie(fd), cookie);
  }));
  EXPECT_FALSE(OnSocket(mine.ours.fd(), cookie, [](int) { ADD_FAILURE(); }));
  EXPECT_FALSE(OnSocket(-1, cookie, [](int) { ADD_FAILURE(); }));
}

}  // namespace
}  // namespace psring
