// Sockets of contexts with keys, over TCP.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/net/address.h"
#include "common/net/socket.h"
#include "tests/testing/captured_log.h"
#include "tests/testing/deaf_port.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr auto kControl = SocketOptions::Plane::kControl;
// A user is promised 2 s, on a machine that has time.
constexpr absl::Duration kSoonEnough = absl::Seconds(20);

Frames OneFrame(absl::string_view bytes) {
  Frames frames;
  frames.push_back(Frame::Copy(bytes));
  return frames;
}

// The next message; nothing, or why there will be none, after `patience`.
// Looks after both sockets.
absl::StatusOr<std::optional<Frames>> Await(Socket& from, Socket& other,
                                            absl::Duration patience) {
  const Time deadline = Now() + patience;
  while (Now() < deadline) {
    auto frames = from.TryReceive();
    if (!frames.ok() || frames->has_value()) return frames;
    Wait({&from, &other}, std::vector<int>{},
         std::min(deadline, Now() + absl::Milliseconds(20)))
        .IgnoreError();
  }
  return std::optional<Frames>();
}

// A port forward: what comes to its port goes on to another one of this host.
// Where nobody listens there it hangs up.
class Forward {
 public:
  // Nothing is behind it for the first connections.
  explicit Forward(int to, int first_ones = 0)
      : to_(to), first_ones_(first_ones), thread_([this] { Run(); }) {}
  ~Forward() {
    Stop();
    close(listener_);
  }

  // It forwards nothing from now on. All that came to its port.
  const std::string& Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return heard_;
  }

  std::string endpoint() const {
    sockaddr_in address = {};
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    return absl::StrCat("tcp://127.0.0.1:", ntohs(address.sin_port));
  }
  int hung_up() const { return hung_up_; }
  // Changes a byte of what next comes back.
  void Damage() { damage_ = true; }

 private:
  static sockaddr_in Port(int port) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }
  static int Listen() {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    const sockaddr_in address = Port(0);
    EXPECT_EQ(
        bind(fd, reinterpret_cast<const sockaddr*>(&address), sizeof(address)),
        0);
    EXPECT_EQ(listen(fd, 8), 0);
    return fd;
  }
  static bool Readable(std::vector<pollfd>& items) {
    return poll(items.data(), items.size(), /*timeout ms=*/20) > 0;
  }

  void Run() {
    while (!stop_) {
      std::vector<pollfd> items = {{listener_, POLLIN, 0}};
      if (!Readable(items)) continue;
      const int near = accept(listener_, nullptr, nullptr);
      const int far = socket(AF_INET, SOCK_STREAM, 0);
      const sockaddr_in address = Port(to_);
      if (hung_up_ >= first_ones_ &&
          connect(far, reinterpret_cast<const sockaddr*>(&address),
                  sizeof(address)) == 0) {
        while (!stop_ && Pass(near, far)) {
        }
      } else {
        ++hung_up_;
      }
      close(near);
      close(far);
    }
  }

  bool Pass(int near, int far) {
    std::vector<pollfd> items = {{near, POLLIN, 0}, {far, POLLIN, 0}};
    if (!Readable(items)) return true;
    const bool back = items[1].revents != 0;
    char bytes[4096];
    const ssize_t size = recv(back ? far : near, bytes, sizeof(bytes), 0);
    if (size <= 0) return false;
    if (!back) heard_.append(bytes, size);
    if (back && damage_.exchange(false)) bytes[size - 1] ^= 1;
    return send(back ? near : far, bytes, size, MSG_NOSIGNAL) == size;
  }

  const int to_;
  const int first_ones_;
  const int listener_ = Listen();
  std::atomic<bool> stop_ = false, damage_ = false;
  std::atomic<int> hung_up_ = 0;
  std::string heard_;  // its thread's
  std::thread thread_;
};

class SecuredSocketTest : public ::testing::Test {
 protected:
  SecuredSocketTest() {
    EXPECT_EQ(here_.Secure(secret_), absl::OkStatus());
    EXPECT_EQ(there_.Secure(secret_), absl::OkStatus());
  }

  static std::unique_ptr<Socket> Bind(Context& context,
                                      SocketOptions::Plane plane) {
    auto socket = Socket::Bind(context, "127.0.0.1", 0, {.plane = plane});
    EXPECT_TRUE(socket.ok()) << socket.status();
    return *std::move(socket);
  }

  static std::unique_ptr<Socket> Connect(Context& context, const Socket& to,
                                         SocketOptions::Plane plane,
                                         std::string peer_key = "") {
    auto socket =
        Socket::Connect(context, to.endpoint(),
                        {.plane = plane, .peer_key = std::move(peer_key)});
    EXPECT_TRUE(socket.ok()) << socket.status();
    return *std::move(socket);
  }

  // A DEALER of `context` gets no word to the control ROUTER of `router`, and
  // is told why.
  static std::string WhyRefused(Context& context, Socket& router) {
    auto dealer = Connect(context, router, kControl);
    EXPECT_EQ(dealer->Send(OneFrame("let me in")), absl::OkStatus());
    const auto answer = Await(*dealer, router, kSoonEnough);
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kPermissionDenied)
        << "nothing within " << kSoonEnough;
    const auto heard = Await(router, *dealer, absl::Milliseconds(50));
    EXPECT_TRUE(heard.ok() && !heard->has_value()) << "it was let in";
    return std::string(answer.status().message());
  }

  const Secret secret_ = Secret::Random();
  Context here_, there_;
};

TEST_F(SecuredSocketTest, WhoHasTheSecretSpeaksOnTheControlPlane) {
  auto router = Bind(here_, kControl);
  auto dealer = Connect(there_, *router, kControl);
  const std::string large(4 << 20, 'x');
  ASSERT_EQ(dealer->Send(OneFrame(large)), absl::OkStatus());
  auto question = Await(*router, *dealer, absl::Seconds(20));
  ASSERT_TRUE(question.ok() && question->has_value()) << question.status();
  EXPECT_TRUE((**question)[1].view() == large);
  (**question)[1] = Frame::Copy("answer");
  ASSERT_EQ(router->Send(*std::move(*question)), absl::OkStatus());
  auto answer = Await(*dealer, *router, absl::Seconds(20));
  ASSERT_TRUE(answer.ok() && answer->has_value()) << answer.status();
  EXPECT_EQ((**answer)[0].view(), "answer");
}

TEST_F(SecuredSocketTest, AnotherSecretIsSaidAtBothEnds) {
  auto router = Bind(here_, kControl);
  Context other;
  ASSERT_EQ(other.Secure(Secret::Random()), absl::OkStatus());
  EXPECT_THAT(WhyRefused(other, *router),
              AllOf(HasSubstr(router->endpoint()),
                    HasSubstr("its key is not the job's"),
                    HasSubstr("psring keygen --print")));
  EXPECT_GT(router->TakeRefusals().other_key, 0);
}

TEST_F(SecuredSocketTest, NoKeyIsSaidAtBothEnds) {
  auto router = Bind(here_, kControl);
  Context none;
  EXPECT_THAT(WhyRefused(none, *router),
              AllOf(HasSubstr("asks for the job's key"),
                    HasSubstr("--key-file"), HasSubstr("psring keygen")));
  EXPECT_GT(router->TakeRefusals().no_key, 0);
}

TEST_F(SecuredSocketTest, AKeyThatIsNotAskedForIsSaidAtBothEnds) {
  Context none;
  ASSERT_EQ(none.UseTokens(), absl::OkStatus());
  auto router = Bind(none, kControl);
  EXPECT_THAT(WhyRefused(here_, *router),
              HasSubstr("has no key, but this process has one"));
  EXPECT_GT(router->TakeRefusals().needs_key, 0);
}

// The limit of this process's open files, for the life of this object.
class FileLimit {
 public:
  // Leaves room for so many more.
  explicit FileLimit(int more) {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    rlimit limit = before_;
    const int free = dup(0);
    close(free);
    limit.rlim_cur = static_cast<rlim_t>(free + more);
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
  }
  ~FileLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

 private:
  rlimit before_ = {};
};

TEST_F(SecuredSocketTest, WhereFilesRunOutIsSaidAndWhoIsConnectedStays) {
#ifdef PSRING_SANITIZED
  GTEST_SKIP() << "to check an object's type UBSan opens a pipe, and fails the "
                  "test where it cannot";
#endif
  CapturedLog log;
  auto router = Bind(here_, kControl);
  auto dealer = Connect(there_, *router, kControl);
  ASSERT_EQ(dealer->Send(OneFrame("before")), absl::OkStatus());
  ASSERT_TRUE(Await(*router, *dealer, absl::Seconds(20))->has_value());
  const HostPort at = *ParseEndpoint(router->endpoint());
  std::vector<int> strangers;
  {
    const FileLimit limit(/*more=*/12);
    const Time deadline = Soon();
    while (log.Count("as many files open as it may") == 0 && Now() < deadline) {
      const int stranger = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
      if (stranger >= 0) {
        strangers.push_back(stranger);
        sockaddr_in address = {};
        address.sin_family = AF_INET;
        address.sin_port = htons(static_cast<uint16_t>(at.port));
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        connect(stranger, reinterpret_cast<sockaddr*>(&address),
                sizeof(address));
      }
      Wait({router.get()}, std::vector<int>{}, Now() + absl::Milliseconds(10))
          .IgnoreError();
      if (stranger < 0 && !strangers.empty()) {  // room for what is accepted
        close(strangers.back());
        strangers.pop_back();
      }
    }
    EXPECT_EQ(log.Count("as many files open as it may"), 1);
    ASSERT_EQ(dealer->Send(OneFrame("after")), absl::OkStatus());
    EXPECT_TRUE(Await(*router, *dealer, absl::Seconds(20))->has_value());
  }
  for (int stranger : strangers) close(stranger);
}

// It says nothing of keys.
TEST_F(SecuredSocketTest, AForwardMayHaveNothingBehindItYet) {
  // A ROUTER that has been closed would listen for a moment.
  auto nobody = std::make_unique<DeafPort>();
  const int port = nobody->port();
  Forward forward(port);
  auto dealer =
      Socket::Connect(there_, forward.endpoint(), {.plane = kControl});
  ASSERT_TRUE(dealer.ok()) << dealer.status();
  ASSERT_EQ((*dealer)->Send(OneFrame("hello")), absl::OkStatus());
  const Time deadline = Soon();
  while (forward.hung_up() < 20 && Now() < deadline) {
    const auto answer = Await(**dealer, **dealer, absl::Milliseconds(50));
    ASSERT_TRUE(answer.ok()) << answer.status();
  }
  ASSERT_GE(forward.hung_up(), 20);
  nobody.reset();
  auto late = Socket::Bind(here_, "127.0.0.1", port, {.plane = kControl});
  ASSERT_TRUE(late.ok()) << late.status();
  const auto heard = Await(**late, **dealer, absl::Seconds(20));
  ASSERT_TRUE(heard.ok() && heard->has_value()) << heard.status();
  EXPECT_EQ((**heard)[1].view(), "hello");
}

// Its first answer comes to the question what it speaks, which the peer asks
// after six connections.
TEST_F(SecuredSocketTest, AForwardThatComesToLifeIsNoOtherKey) {
  auto router = Bind(here_, kControl);
  Forward forward(ParseEndpoint(router->endpoint())->port, /*first_ones=*/6);
  auto dealer =
      Socket::Connect(there_, forward.endpoint(), {.plane = kControl});
  ASSERT_TRUE(dealer.ok()) << dealer.status();
  ASSERT_EQ((*dealer)->Send(OneFrame("hello")), absl::OkStatus());
  const Time deadline = Soon();
  std::optional<Frames> heard;
  while (!heard.has_value() && Now() < deadline) {
    const auto answer = (*dealer)->TryReceive();
    ASSERT_TRUE(answer.ok()) << answer.status();
    auto news = Await(*router, **dealer, absl::Milliseconds(20));
    ASSERT_TRUE(news.ok()) << news.status();
    heard = *std::move(news);
  }
  EXPECT_TRUE(heard.has_value());
}

TEST_F(SecuredSocketTest, WhatADisturbedConnectionLostComesAgain) {
  auto router = Bind(here_, kControl);
  Forward forward(ParseEndpoint(router->endpoint())->port);
  auto dealer =
      Socket::Connect(there_, forward.endpoint(), {.plane = kControl});
  ASSERT_TRUE(dealer.ok()) << dealer.status();
  for (const bool damage : {false, true, true, false}) {
    ASSERT_EQ((*dealer)->Send(OneFrame("question")), absl::OkStatus());
    auto question = Await(*router, **dealer, absl::Seconds(20));
    ASSERT_TRUE(question.ok() && question->has_value()) << question.status();
    (**question)[1] = Frame::Copy("answer");
    if (damage) forward.Damage();
    ASSERT_EQ(router->Send(*std::move(*question)), absl::OkStatus());
    const Time deadline = Soon();
    std::optional<Frames> answer;
    while (!answer.has_value() && Now() < deadline) {
      // The router must look at its socket, too: it is asked to say it again.
      const auto repeat = router->TryReceive();
      ASSERT_TRUE(repeat.ok() && !repeat->has_value()) << repeat.status();
      auto news = Await(**dealer, *router, absl::Milliseconds(20));
      ASSERT_TRUE(news.ok()) << news.status();
      answer = *std::move(news);
    }
    ASSERT_TRUE(answer.has_value());
    EXPECT_EQ((*answer)[0].view(), "answer");
  }
}

// Whoever has read the network can say all of it again, to the last byte.
TEST_F(SecuredSocketTest, ARecordedConversationIsNotHeardAgain) {
  auto router = Bind(here_, kControl);
  const int port = ParseEndpoint(router->endpoint())->port;
  Forward forward(port);
  auto dealer =
      Socket::Connect(there_, forward.endpoint(), {.plane = kControl});
  ASSERT_TRUE(dealer.ok()) << dealer.status();
  ASSERT_EQ((*dealer)->Send(OneFrame("stop the job")), absl::OkStatus());
  const auto heard = Await(*router, **dealer, absl::Seconds(20));
  ASSERT_TRUE(heard.ok() && heard->has_value()) << heard.status();
  const std::string recording = forward.Stop();
  ASSERT_GT(recording.size(), 300u);

  HostilePeer stranger(router->endpoint());
  stranger.SendBytes(recording);
  EXPECT_TRUE(stranger.AwaitHangUp(Soon())) << "it is still listened to";
  const auto again = Await(*router, *router, absl::Milliseconds(50));
  EXPECT_TRUE(again.ok() && !again->has_value()) << "it was heard again";
}

// A job with a key, and one with tokens.
class ProvenDataTest : public SecuredSocketTest,
                       public ::testing::WithParamInterface<bool> {
 protected:
  static constexpr auto kData = SocketOptions::Plane::kData;

  ProvenDataTest() {
    for (Context* context : {&router_, &dealer_, &stranger_}) {
      EXPECT_EQ(GetParam() ? context->Secure(secret_) : context->UseTokens(),
                absl::OkStatus());
    }
  }

  Context router_, dealer_, stranger_;
};

TEST_P(ProvenDataTest, OnlyTheJobsWorkersReachDataEachAsItsRank) {
  router_.AllowWorkers({router_.public_key(), dealer_.public_key()});
  auto router = Bind(router_, kData);
  auto worker = Connect(dealer_, *router, kData, router_.public_key());
  ASSERT_EQ(worker->Send(OneFrame("push")), absl::OkStatus());
  auto push = Await(*router, *worker, absl::Seconds(20));
  ASSERT_TRUE(push.ok() && push->has_value()) << push.status();
  EXPECT_EQ((**push)[1].proven_rank(), 1);
  EXPECT_EQ(CheckSender((**push)[1].proven_rank(), 1), absl::OkStatus());
  EXPECT_EQ(CheckSender((**push)[1].proven_rank(), 0).code(),
            absl::StatusCode::kPermissionDenied);

  auto refused = Connect(stranger_, *router, kData, router_.public_key());
  ASSERT_EQ(refused->Send(OneFrame("push")), absl::OkStatus());
  EXPECT_EQ(Await(*refused, *router, kSoonEnough).status().code(),
            absl::StatusCode::kPermissionDenied);
  const auto heard = Await(*router, *refused, absl::Milliseconds(50));
  EXPECT_TRUE(heard.ok() && !heard->has_value()) << "it was let in";
}

// It could make a server keep an answer for each connection that it has had.
TEST_P(ProvenDataTest, ARanksEarlierSocketsAreForgotten) {
  router_.AllowWorkers({router_.public_key(), dealer_.public_key()});
  auto router = Bind(router_, kData);
  std::string first;
  for (int i = 0; i < 66; ++i) {
    auto worker = Connect(dealer_, *router, kData, router_.public_key());
    ASSERT_EQ(worker->Send(OneFrame("pull")), absl::OkStatus());
    auto pull = Await(*router, *worker, absl::Seconds(20));
    ASSERT_TRUE(pull.ok() && pull->has_value()) << pull.status();
    const std::string identity((**pull)[0].view());
    if (first.empty()) first = identity;
    Frames answer;
    answer.push_back(Frame::Copy(identity));
    answer.push_back(Frame::Copy("parameters"));
    EXPECT_EQ(router->Send(std::move(answer)), absl::OkStatus());
  }
  Frames late;
  late.push_back(Frame::Copy(first));
  late.push_back(Frame::Copy("parameters"));
  EXPECT_EQ(router->Send(std::move(late)).code(), absl::StatusCode::kNotFound);
}

TEST_P(ProvenDataTest, WhoDoesNotKnowTheServersKeyIsNotHeard) {
  dealer_.AllowWorkers({dealer_.public_key()});
  router_.AllowWorkers({dealer_.public_key()});
  auto router = Bind(router_, kData);
  auto dealer = Connect(dealer_, *router, kData, dealer_.public_key());
  ASSERT_EQ(dealer->Send(OneFrame("push")), absl::OkStatus());
  EXPECT_EQ(Await(*dealer, *router, kSoonEnough).status().code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_FALSE(Socket::Connect(dealer_, router->endpoint()).ok())
      << "a server without a key";
}

// It says nothing that could be malformed: ZeroMQ hangs up on it.
TEST_P(ProvenDataTest, WhoShowsNothingIsNotHeard) {
  router_.AllowWorkers({dealer_.public_key()});
  auto router = Bind(router_, kData);
  Context nobody;
  auto dealer = Connect(nobody, *router, kData);
  ASSERT_EQ(dealer->Send(OneFrame("push")), absl::OkStatus());
  const auto heard = Await(*router, *dealer, absl::Milliseconds(500));
  EXPECT_TRUE(heard.ok() && !heard->has_value()) << "it was let in";
}

INSTANTIATE_TEST_SUITE_P(Proofs, ProvenDataTest, ::testing::Bool(),
                         [](const auto& test) {
                           return test.param ? "Keys" : "Tokens";
                         });

// The limit is on what a message holds, not on what encryption makes of it.
TEST_F(SecuredSocketTest, AFrameOfTheGreatestSizePasses) {
  constexpr auto kData = SocketOptions::Plane::kData;
  here_.AllowWorkers({there_.public_key()});
  const std::string bytes(1 << 16, 'x');
  auto router =
      Socket::Bind(here_, "127.0.0.1", 0,
                   {.max_frame_bytes = static_cast<int64_t>(bytes.size())});
  ASSERT_TRUE(router.ok()) << router.status();
  auto dealer = Connect(there_, **router, kData, here_.public_key());
  ASSERT_EQ(dealer->Send(OneFrame(bytes)), absl::OkStatus());
  const auto heard = Await(**router, *dealer, absl::Seconds(20));
  ASSERT_TRUE(heard.ok() && heard->has_value()) << heard.status();
  EXPECT_TRUE((**heard)[1].view() == bytes);
}

}  // namespace
}  // namespace psring
