// Jobs whose output nobody reads any more, and nobody has closed: behind a
// pager, or in a terminal after Ctrl-S.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/process.h"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using ::testing::HasSubstr;
using Flags = std::vector<std::string>;

// An epoch, and so a line, takes milliseconds.
Flags MuchToSay() {
  return {"--model=mlp:784-4-10", "--data=digits:train=64,test=8",
          "--batch-size=32",      "--threads=1",
          "--device=cpu",         "--epochs=1000000"};
}

class StoppedReader : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(mkfifo(fifo_.c_str(), 0600), 0);
    reader_ = open(fifo_.c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(reader_, 0);
  }
  void TearDown() override { close(reader_); }

  // With both streams into the pipe.
  Process Start(const Flags& argv) {
    Flags shell = {"/bin/sh", "-c", "exec \"$@\" >" + fifo_ + " 2>&1", "sh"};
    shell.insert(shell.end(), argv.begin(), argv.end());
    auto process = Process::Start(std::move(shell));
    EXPECT_TRUE(process.ok()) << process.status();
    return *std::move(process);
  }

  int Unread() const {
    int size = 0;
    ioctl(reader_, FIONREAD, &size);
    return size;
  }

  // Until no line fits in any more.
  void AwaitFull() const {
    const Time deadline = Soon();
    int before = -1;
    while (Now() < deadline) {
      const int now = Unread();
      if (now > 50'000 && now == before) return;
      before = now;
      absl::SleepFor(absl::Seconds(1.5));
    }
    FAIL() << "only " << Unread() << " bytes were written";
  }

  // What comes, until `text` is in it: lines are only missing where they have
  // found the pipe full, so it stops reading now and then.
  std::string ReadUntil(const std::string& text) const {
    std::string all;
    const Time deadline = Soon();
    Time pause = Now() + kReading;
    while (all.find(text) == std::string::npos && Now() < deadline) {
      if (Now() >= pause) {
        AwaitFull();
        pause = Now() + kReading;
      }
      char part[4096];
      const int size = std::min<int>(Unread(), sizeof(part));
      if (size == 0) {
        absl::SleepFor(absl::Milliseconds(20));
      } else {
        all.append(part, std::max<ssize_t>(read(reader_, part, size), 0));
      }
    }
    return all;
  }

  static constexpr absl::Duration kReading = absl::Seconds(5);

  const std::string folder_ = testing::TestDirectory();
  const std::string fifo_ = folder_ + "/pipe";
  int reader_ = -1;
};

TEST_F(StoppedReader, AWorkerTrainsOnAndHearsSignals) {
  Flags argv = MuchToSay();
  argv.insert(argv.begin(), {WorkerBinary(), "--mode=ring", "--workers=1",
                             "--coordinator=127.0.0.1:0", "--rank=0"});
  Process worker = Start(argv);
  AwaitFull();
  EXPECT_THAT(ReadUntil("nobody has read them]\n"),
              HasSubstr(" lines are missing here: nobody has read them]\n"));
  AwaitFull();
  worker.Signal(SIGTERM);
  EXPECT_EQ(worker.Wait(Soon()), 0);
}

TEST_F(StoppedReader, ALauncherEndsItsJob) {
  Process launch =
      Start(LaunchArgv({.mode = "ring", .worker_flags = MuchToSay()}));
  AwaitFull();
  launch.Signal(SIGTERM);
  EXPECT_EQ(launch.Wait(Soon()), 0);
}

}  // namespace
}  // namespace psring
