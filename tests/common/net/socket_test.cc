#include "common/net/socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/address.h"
#include "common/net/context.h"
#include "common/net/keys.h"
#include "tests/testing/deaf_port.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Frames Receive(Socket& socket) {
  const Time deadline = Soon();
  while (Now() < deadline) {
    auto frames = socket.TryReceive();
    EXPECT_TRUE(frames.ok()) << frames.status();
    if (!frames.ok()) return {};
    if (frames->has_value()) return *std::move(*frames);
    EXPECT_TRUE(Wait({&socket}, std::vector<int>{}, deadline).ok());
  }
  ADD_FAILURE() << "nothing came";
  return {};
}

Frames OneFrame(absl::string_view bytes) {
  Frames frames;
  frames.push_back(Frame::Copy(bytes));
  return frames;
}

// A script's timer, a profiler, a child that ends.
class Signals {
 public:
  Signals() {
    signal(SIGALRM, [](int) {});
    const itimerval often = {{0, 50}, {0, 50}};
    setitimer(ITIMER_REAL, &often, nullptr);
  }
  ~Signals() {
    const itimerval never = {};
    setitimer(ITIMER_REAL, &never, nullptr);
  }
};

TEST(Socket, SignalsOfTheProgramDisturbNothing) {
  Context context;
  ASSERT_TRUE(context.Secure(Secret::Random()).ok());
  const SocketOptions control = {.plane = SocketOptions::Plane::kControl};
  const Signals signals;
  for (int i = 0; i < 20; ++i) {
    auto router = Socket::Bind(context, "127.0.0.1", 0, control);
    ASSERT_TRUE(router.ok()) << router.status();
    auto dealer = Socket::Connect(context, (*router)->endpoint(), control);
    ASSERT_TRUE(dealer.ok()) << dealer.status();
    for (int n = 0; n < 300; ++n) {
      const absl::Status sent = (*dealer)->Send(OneFrame(absl::StrCat(n)));
      ASSERT_TRUE(sent.ok()) << sent;
      Frames question = Receive(**router);
      ASSERT_EQ(question.size(), 2u);
      ASSERT_EQ(question[1].view(), absl::StrCat(n));
      ASSERT_TRUE((*router)->Send(std::move(question)).ok());
      ASSERT_EQ(Receive(**dealer).size(), 1u);
    }
  }
}

TEST(Socket, RouterAnswersTheDealerThatAsked) {
  Context context;
  auto router = Socket::Bind(context, "127.0.0.1", 0);
  ASSERT_TRUE(router.ok()) << router.status();
  auto dealer = Socket::Connect(context, (*router)->endpoint());
  ASSERT_TRUE(dealer.ok()) << dealer.status();
  ASSERT_TRUE((*dealer)->Send(OneFrame("question")).ok());

  Frames question = Receive(**router);
  ASSERT_EQ(question.size(), 2u);
  EXPECT_EQ(question[1].view(), "question");
  question[1] = Frame::Copy("answer");
  ASSERT_TRUE((*router)->Send(std::move(question)).ok());

  Frames answer = Receive(**dealer);
  ASSERT_EQ(answer.size(), 1u);
  EXPECT_EQ(answer[0].view(), "answer");
  EXPECT_EQ((*dealer)->bytes_sent(), 8);
  EXPECT_EQ((*dealer)->bytes_received(), 6);
}

// What ZeroMQ has learned of while it sent is not announced again.
TEST(Socket, WaitSeesWhatCameWhileItSent) {
  Context context;
  auto router = Socket::Bind(context, "127.0.0.1", 0);
  auto dealer = Socket::Connect(context, (*router)->endpoint());
  ASSERT_TRUE((*dealer)->Send(OneFrame("hello")).ok());
  const Frames hello = Receive(**router);
  for (int round = 0; round < 200; ++round) {
    ASSERT_TRUE((*dealer)->Send(OneFrame("question")).ok());
    Frames ours = OneFrame(hello[0].view());
    ours.push_back(Frame::Copy("answer"));
    ASSERT_TRUE((*router)->Send(std::move(ours)).ok());
    Socket* const both[] = {router->get(), dealer->get()};
    for (Socket* socket : both) {
      const Time deadline = Soon();
      auto frames = socket->TryReceive();
      while (frames.ok() && !frames->has_value() && Now() < deadline) {
        // It may also end because the connection has been made.
        const auto message = WaitForMessage({&socket, 1}, {}, deadline);
        ASSERT_TRUE(message.ok()) << message.status();
        frames = socket->TryReceive();
      }
      ASSERT_TRUE(frames.ok() && frames->has_value()) << "round " << round;
    }
  }
}

TEST(Socket, WaitTellsAMessageFromADescriptor) {
  Context context;
  auto router = Socket::Bind(context, "127.0.0.1", 0);
  auto dealer = Socket::Connect(context, (*router)->endpoint());
  Socket* const sockets[] = {router->get()};
  EXPECT_EQ(*WaitForMessage(sockets, {}, Now()), false);
  ASSERT_TRUE((*dealer)->Send(OneFrame("hello")).ok());
  EXPECT_EQ(*WaitForMessage(sockets, {}, Soon()), true);
  Receive(**router);
  int readable[2];
  ASSERT_EQ(pipe(readable), 0);
  ASSERT_EQ(write(readable[1], "x", 1), 1);
  const int fds[] = {readable[0]};
  // Acknowledgements pass: they are no messages, but may be there.
  const Time deadline = Soon();
  while (*WaitForMessage(sockets, fds, deadline) && Now() < deadline) {
    ASSERT_FALSE((*router)->TryReceive()->has_value());
  }
  EXPECT_LT(Now(), deadline);
  close(readable[0]);
  close(readable[1]);
}

TEST(Socket, BorrowedBytesArriveUncopiedAndWhole) {
  std::string payload(3 << 20, 'x');
  payload[12345] = 'y';
  Context context;
  auto router = Socket::Bind(context, "127.0.0.1", 0);
  auto dealer = Socket::Connect(context, (*router)->endpoint());
  Frame frame = Frame::Borrow(payload.data(), payload.size(), nullptr);
  EXPECT_EQ(frame.data(), payload.data());
  Frames frames;
  frames.push_back(std::move(frame));
  ASSERT_TRUE((*dealer)->Send(std::move(frames)).ok());
  Frames received = Receive(**router);
  ASSERT_EQ(received.size(), 2u);
  EXPECT_TRUE(received[1].view() == payload);
}

// ZeroMQ may read them after the socket's end, as where a connection breaks
// then.
TEST(Socket, BorrowedBytesStayUntilTheyAreSentOrGivenUp) {
  auto context = std::make_unique<Context>();
  SocketOptions options;
  options.linger = absl::Seconds(2);
  const DeafPort nobody;
  auto dealer = Socket::Connect(
      *context, absl::StrCat("tcp://", nobody.address()), options);
  auto payload = std::make_shared<const std::string>(1 << 20, 'x');
  const std::weak_ptr<const std::string> kept = payload;
  Frames frames;
  frames.push_back(Frame::Borrow(payload->data(), payload->size(), payload));
  payload.reset();
  ASSERT_TRUE((*dealer)->Send(std::move(frames)).ok());
  dealer->reset();
  EXPECT_FALSE(kept.expired());
  context.reset();
  EXPECT_TRUE(kept.expired());
}

TEST(Socket, WhatWasSentLastArrivesAfterItsEnd) {
  Context context;
  auto router = Socket::Bind(context, "127.0.0.1", 0);
  SocketOptions options;
  options.linger = absl::Seconds(30);
  auto dealer = Socket::Connect(context, (*router)->endpoint(), options);
  ASSERT_TRUE((*dealer)->Send(OneFrame("farewell")).ok());
  dealer->reset();
  EXPECT_EQ(Receive(**router)[1].view(), "farewell");
}

// As where both ends of a job that fails close, with much on its way. ZeroMQ
// takes nothing in from a socket that lingers: what comes then, and a broken
// connection after it, has to be nothing to it.
TEST(Socket, ItsEndOutlivesAPeerThatSpeaksAndBreaksOff) {
  const SilentPort port;
  Context context;
  SocketOptions options;
  options.linger = absl::Seconds(3);
  auto dealer =
      Socket::Connect(context, absl::StrCat("tcp://", port.address()), options);
  const int peer = port.Accept();
  const auto say = [peer](const std::string& bytes) {
    EXPECT_EQ(send(peer, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              bytes.size());
  };
  // More than what the kernel takes.
  ASSERT_TRUE((*dealer)->Send(OneFrame(std::string(64 << 20, 'x'))).ok());
  say(ZmtpGreeting() + ZmtpReady());
  std::string begun(1 << 20, ' ');
  EXPECT_EQ(recv(peer, begun.data(), begun.size(), MSG_WAITALL), begun.size());
  dealer->reset();
  absl::SleepFor(absl::Milliseconds(300));
  say(std::string("\0\1x", 3));  // a message of one byte
  absl::SleepFor(absl::Milliseconds(300));
  close(peer);
}  // the context waits for what lingers

TEST(Socket, KeepsWhatItsPeerDoesNotKnowToHaveArrived) {
  Context context;
  auto router = Socket::Bind(context, "127.0.0.1", 0);
  auto dealer = Socket::Connect(context, (*router)->endpoint());
  ASSERT_TRUE((*dealer)->Send(OneFrame("x")).ok());
  Receive(**router);
  EXPECT_FALSE((*dealer)->delivered());
  (*router)->Acknowledge();
  const Time deadline = Soon();
  while (!(*dealer)->delivered() && Now() < deadline) {
    ASSERT_TRUE(Wait({dealer->get()}, std::vector<int>{}, deadline).ok());
    EXPECT_FALSE((*dealer)->TryReceive()->has_value());
  }
  EXPECT_TRUE((*dealer)->delivered());
}

TEST(Socket, ListensOnThePortsOfItsContext) {
  Context context;
  const int first = FreePort() | 1;
  context.UsePorts({first, first + 1});
  std::vector<std::unique_ptr<Socket>> sockets;
  auto socket = Socket::Bind(context, "127.0.0.1", 0);
  while (socket.ok()) {
    sockets.push_back(*std::move(socket));
    const int port = ParseEndpoint(sockets.back()->endpoint())->port;
    ASSERT_TRUE(port == first || port == first + 1) << port;
    ASSERT_LE(sockets.size(), 2u);
    socket = Socket::Bind(context, "127.0.0.1", 0);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(socket.status()));
  EXPECT_THAT(std::string(socket.status().message()),
              AllOf(HasSubstr(absl::StrCat(first, "-", first + 1, " (--ports")),
                    HasSubstr("in use")));
}

TEST(Socket, NamesTheFlagWhereTheOnlyPortIsTaken) {
  Context context;
  auto taken = Socket::Bind(context, "127.0.0.1", 0);
  const int port = ParseEndpoint((*taken)->endpoint())->port;
  context.UsePorts({port, port});
  EXPECT_THAT(
      std::string(Socket::Bind(context, "127.0.0.1", 0).status().message()),
      HasSubstr(absl::StrCat(port, "-", port, " (--ports")));
}

// As behind a firewall. What is kept for a peer would never arrive.
TEST(Socket, SaysThatItsPeerCannotBeReached) {
  Context context;
  const DeafPort port;
  const std::string nobody = absl::StrCat("tcp://", port.address());
  SocketOptions options;
  options.unreachable_after = absl::Seconds(2);
  auto dealer = Socket::Connect(context, nobody, options);
  absl::SleepFor(options.unreachable_after);
  ASSERT_TRUE((*dealer)->TryReceive().ok()) << "nothing is to be sent";
  const Time needed = Now();
  ASSERT_TRUE((*dealer)->Send(OneFrame("x")).ok());
  ASSERT_TRUE((*dealer)->TryReceive().ok() ||
              Now() - needed >= options.unreachable_after)
      << "it was not needed before";
  Socket* const sockets[] = {dealer->get()};
  const Time deadline = Soon();
  absl::Status status;
  while (status.ok() && Now() < deadline) {
    ASSERT_TRUE(Wait(sockets, std::vector<int>{}, deadline).ok());
    status = (*dealer)->TryReceive().status();
  }
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr("no connection to " + nobody), HasSubstr("firewall"),
            HasSubstr(absl::StrCat("keep ", HostName(), " from it")),
            HasSubstr("--interface or --advertise")));
}

TEST(Socket, SaysItBeforeThoseEndWhoWait) {
  Context context;
  context.ExpectWaitsOf(absl::Seconds(12));
  const DeafPort port;
  SocketOptions options;
  options.unreachable_after = absl::Seconds(600);
  auto dealer =
      Socket::Connect(context, absl::StrCat("tcp://", port.address()), options);
  ASSERT_TRUE((*dealer)->Send(OneFrame("x")).ok());
  const Time deadline = Soon();
  absl::Status status;
  while (status.ok() && Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(100));
    status = (*dealer)->TryReceive().status();
  }
  EXPECT_THAT(std::string(status.message()), HasSubstr("no connection to"));
}

// Nobody may have waited on it since it was connected.
TEST(Socket, KnowsThatItIsConnectedWithoutAWait) {
  Context context;
  auto router = Socket::Bind(context, "127.0.0.1", 0);
  SocketOptions options;
  options.unreachable_after = absl::Seconds(1);
  auto dealer = Socket::Connect(context, (*router)->endpoint(), options);
  ASSERT_TRUE((*dealer)->Send(OneFrame("one")).ok());
  ASSERT_TRUE((*dealer)->TryReceive().ok());  // it may not be connected yet
  EXPECT_EQ(Receive(**router)[1].view(), "one");
  absl::SleepFor(2 * options.unreachable_after);
  ASSERT_TRUE((*dealer)->Send(OneFrame("two")).ok());
  const auto still = (*dealer)->TryReceive();
  EXPECT_TRUE(still.ok()) << still.status();
}

// Also of one that it was connected to, until somebody is there again.
TEST(Socket, APeerThatComesBackInTimeIsReached) {
  Context context;
  SocketOptions options;
  options.unreachable_after = absl::Seconds(60);
  auto router = Socket::Bind(context, "127.0.0.1", 0);
  const std::string endpoint = (*router)->endpoint();
  auto dealer = Socket::Connect(context, endpoint, options);
  ASSERT_TRUE((*dealer)->Send(OneFrame("one")).ok());
  EXPECT_EQ(Receive(**router)[1].view(), "one");
  router->reset();
  ASSERT_TRUE((*dealer)->Send(OneFrame("two")).ok());
  absl::SleepFor(absl::Seconds(1.5));
  router = Socket::Bind(context, "127.0.0.1", ParseEndpoint(endpoint)->port);
  ASSERT_TRUE(router.ok()) << router.status();
  Socket* const sockets[] = {dealer->get(), router->get()};
  const Time deadline = Soon();
  absl::StatusOr<std::optional<Frames>> come;
  do {
    ASSERT_TRUE(Wait(sockets, std::vector<int>{}, deadline).ok());
    ASSERT_TRUE((*dealer)->TryReceive().ok());
    come = (*router)->TryReceive();
  } while (come.ok() && !come->has_value() && Now() < deadline);
  ASSERT_TRUE(come.ok() && come->has_value());
}

// A process of a large job has one to every other process; ZeroMQ's default
// ends at 341.
TEST(Socket, AProcessMayHaveManyConnections) {
  Context context;
  auto router = Socket::Bind(context, "127.0.0.1", 0);
  ASSERT_TRUE(router.ok()) << router.status();
  rlimit files;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &files), 0);
  files.rlim_cur = files.rlim_max;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &files), 0);
  std::vector<std::unique_ptr<Socket>> dealers;
  for (int i = 0; i < 400; ++i) {
    auto dealer = Socket::Connect(context, (*router)->endpoint());
    ASSERT_TRUE(dealer.ok()) << i << ": " << dealer.status();
    dealers.push_back(*std::move(dealer));
  }
  ASSERT_TRUE(dealers.back()->Send(OneFrame("hello")).ok());
  EXPECT_EQ(Receive(**router)[1].view(), "hello");
}

// With what chooses another one: of a launcher's port nobody has typed any.
TEST(Socket, NamesThePortInUseAndTheRemedy) {
  Context context;
  auto first = Socket::Bind(context, "127.0.0.1", 0);
  const std::string endpoint = (*first)->endpoint();
  const int port = ParseEndpoint(endpoint)->port;
  auto second = Socket::Bind(context, "127.0.0.1", port);
  ASSERT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(second.status().message()),
              AllOf(HasSubstr(endpoint), HasSubstr("--coordinator"),
                    HasSubstr("PSRING_COORDINATOR")));
}

TEST(Socket, RefusesToListenOnAnAddressOfAnotherHost) {
  Context context;
  auto socket = Socket::Bind(context, "192.0.2.1", 0);
  EXPECT_EQ(socket.status().code(), absl::StatusCode::kInvalidArgument)
      << socket.status();
}

TEST(Socket, SendingToAPeerThatIsGoneIsAnErrorNotACrash) {
  Context context;
  auto router = Socket::Bind(context, "127.0.0.1", 0);
  Frames frames;
  frames.push_back(Frame::Copy("nobody"));
  frames.push_back(Frame::Copy("hello"));
  EXPECT_EQ((*router)->Send(std::move(frames)).code(),
            absl::StatusCode::kNotFound);
}

TEST(Wait, EndsAtItsDeadline) {
  Context context;
  auto router = Socket::Bind(context, "127.0.0.1", 0);
  const Time deadline = Now() + absl::Milliseconds(20);
  EXPECT_TRUE(Wait({router->get()}, std::vector<int>{}, deadline).ok());
  EXPECT_GE(Now(), deadline);
}

TEST(Wait, EndsWithTheReasonWhenCancelled) {
  Context context;
  Cancellation cancellation;
  auto router = Socket::Bind(context, "127.0.0.1", 0);
  std::thread canceller([&] {
    cancellation.Cancel(absl::AbortedError("worker 2 is gone"));
    cancellation.Cancel(absl::AbortedError("too late"));
  });
  absl::Status status;
  while (status.ok()) status = Wait({router->get()}, cancellation, Soon());
  EXPECT_EQ(status.message(), "worker 2 is gone");
  canceller.join();
}

}  // namespace
}  // namespace psring
