#include "common/net/context.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "common/clock.h"
#include "common/net/socket.h"
#include "tests/testing/soon.h"

namespace psring {
namespace {

// Nanoseconds that each of ZeroMQ's I/O threads of this process has run for.
std::vector<int64_t> TimesOfIoThreads() {
  std::vector<int64_t> times;
  for (const auto& task :
       std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm") >> std::ws, name);
    if (!absl::StrContains(name, "/IO/")) continue;
    std::ifstream(task.path() / "schedstat") >> times.emplace_back(0);
  }
  return times;
}

TEST(Context, TakesAQuarterOfTheCoresUpToFourForIo) {
  EXPECT_EQ(IoThreads(1), 1);
  EXPECT_EQ(IoThreads(7), 1);
  EXPECT_EQ(IoThreads(8), 2);
  EXPECT_EQ(IoThreads(16), 4);
  EXPECT_EQ(IoThreads(256), 4);
}

int NumOpenFiles() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<int>(std::distance(begin(files), end(files)));
}

TEST(Context, KeepsNoFilesOfSocketsThatAreGone) {
  Context context;
  ASSERT_EQ(context.UseTokens(), absl::OkStatus());  // strangers are watched
  const auto listen = [&] {
    const auto router = Socket::Bind(context, "127.0.0.1", 0,
                                     {.plane = SocketOptions::Plane::kControl});
    ASSERT_TRUE(router.ok()) << router.status();
  };
  listen();  // whatever is opened once
  const int before = NumOpenFiles();
  for (int i = 0; i < 20; ++i) listen();
  const Time deadline = Soon();  // other threads close them
  while (NumOpenFiles() > before && Now() < deadline) {
    absl::SleepFor(absl::Milliseconds(10));
  }
  EXPECT_LE(NumOpenFiles(), before);
}

TEST(Context, ItsIoThreadsShareTheConnections) {
  constexpr int kMessages = 32;
  Context context(/*io_threads=*/2);
  auto router = Socket::Bind(context, "127.0.0.1", 0);
  ASSERT_TRUE(router.ok()) << router.status();
  std::vector<std::unique_ptr<Socket>> dealers;
  for (int i = 0; i < 2; ++i) {
    auto dealer = Socket::Connect(context, (*router)->endpoint());
    ASSERT_TRUE(dealer.ok()) << dealer.status();
    for (int message = 0; message < kMessages; ++message) {
      Frames frames;
      frames.push_back(Frame::Copy(std::string(1 << 20, 'x')));
      ASSERT_TRUE((*dealer)->Send(std::move(frames)).ok());
    }
    dealers.push_back(*std::move(dealer));
  }
  Socket* const sockets[] = {router->get(), dealers[0].get(), dealers[1].get()};
  const Time deadline = Soon();
  for (int received = 0; received < 2 * kMessages;) {
    ASSERT_LT(Now(), deadline) << received << " messages have come";
    auto frames = (*router)->TryReceive();
    ASSERT_TRUE(frames.ok()) << frames.status();
    received += frames->has_value();
    if (!frames->has_value()) {
      ASSERT_TRUE(Wait(sockets, std::vector<int>{}, deadline).ok());
    }
  }
  const std::vector<int64_t> times = TimesOfIoThreads();
  ASSERT_EQ(times.size(), 2u);
  EXPECT_GT(times[0], times[1] / 10);
  EXPECT_GT(times[1], times[0] / 10);
}

}  // namespace
}  // namespace psring
