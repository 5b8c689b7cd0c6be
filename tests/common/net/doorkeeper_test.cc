// Who may connect, and how many who have not shown it.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/net/address.h"
#include "common/net/socket.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

int ConnectTo(const Socket& to, int flags) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | flags, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port =
      htons(static_cast<uint16_t>(ParseEndpoint(to.endpoint())->port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int connected =
      connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address));
  EXPECT_TRUE(connected == 0 || errno == EINPROGRESS);
  return fd;
}

// A script's process has a context for itself and one for each of its servers.
TEST(Doorkeeper, ContextsShareTheFilesOfTheProcess) {
  constexpr size_t kContexts = 4, kFiles = 512, kEach = 60;
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = kFiles;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
  {
    std::deque<Context> contexts(kContexts);
    std::vector<std::unique_ptr<Socket>> routers;
    for (Context& context : contexts) {
      ASSERT_EQ(context.UseTokens(), absl::OkStatus());
      auto router = Socket::Bind(context, "127.0.0.1", 0,
                                 {.plane = SocketOptions::Plane::kControl});
      ASSERT_TRUE(router.ok()) << router.status();
      routers.push_back(*std::move(router));
    }
    std::vector<pollfd> strangers;
    for (size_t i = 0; i < kEach; ++i) {
      for (const auto& router : routers) {
        strangers.push_back({ConnectTo(*router, /*flags=*/0), POLLRDHUP, 0});
      }
    }
    const auto staying = [&] {
      poll(strangers.data(), strangers.size(), /*timeout ms=*/20);
      return static_cast<size_t>(
          std::count_if(strangers.begin(), strangers.end(),
                        [](const pollfd& s) { return s.revents == 0; }));
    };
    const Time deadline = Soon();
    while (staying() > kFiles / 4 && Now() < deadline) {
    }
    EXPECT_LE(staying(), kFiles / 4);
    EXPECT_GE(staying(), kFiles / 4 / kContexts);
    for (const pollfd& stranger : strangers) close(stranger.fd);
  }
  setrlimit(RLIMIT_NOFILE, &before);
}

// Until the log says so. Who is known is still heard, and a peer of the job
// gets in.
TEST(Doorkeeper, TakesInOnlySoManyStrangersASecond) {
  CapturedLog log;
  Context job, peers;
  ASSERT_EQ(job.UseTokens(), absl::OkStatus());
  ASSERT_EQ(peers.UseTokens(), absl::OkStatus());
  const SocketOptions options = {.plane = SocketOptions::Plane::kControl};
  auto router = Socket::Bind(job, "127.0.0.1", 0, options);
  ASSERT_TRUE(router.ok()) << router.status();
  const auto is_heard = [&](const std::unique_ptr<Socket>& peer) {
    Frames message;
    message.push_back(Frame::Copy("here"));
    EXPECT_EQ(peer->Send(std::move(message)), absl::OkStatus());
    const Time deadline = Soon();
    while (Now() < deadline) {
      Wait({peer.get(), router->get()}, std::vector<int>{}, deadline)
          .IgnoreError();
      EXPECT_TRUE(peer->TryReceive().ok());
      const auto heard = (*router)->TryReceive();
      if (heard.ok() && heard->has_value()) return true;
    }
    return false;
  };
  auto early = Socket::Connect(peers, (*router)->endpoint(), options);
  ASSERT_TRUE(early.ok()) << early.status();
  EXPECT_TRUE(is_heard(*early));

  const Time deadline = Soon();
  while (log.Count("too many connections come from 127.0.0.1") == 0) {
    ASSERT_LT(Now(), deadline);
    std::vector<pollfd> strangers;
    for (int i = 0; i < 64; ++i) {
      strangers.push_back({ConnectTo(**router, SOCK_NONBLOCK), POLLIN, 0});
    }
    poll(strangers.data(), strangers.size(), /*timeout ms=*/20);
    for (const pollfd& stranger : strangers) close(stranger.fd);
  }
  EXPECT_TRUE(is_heard(*early));
  auto late = Socket::Connect(peers, (*router)->endpoint(), options);
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_TRUE(is_heard(*late));
}

}  // namespace
}  // namespace psring
