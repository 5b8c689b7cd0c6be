// Strangers who want a job's memory, its files or its time: at every port, with
// and without a key. It trains on, ends with the weights that it would have
// ended with, and no process grows by more than 64 MB. Prints a table of what
// each attack cost: SECURITY.md has it.
#include "tests/chaos/strangers.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdio>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "common/net/link.h"
#include "common/process/open_files.h"
#include "protos/cluster.pb.h"
#include "tests/integration/hand_job.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/hostile_peer.h"
#include "tests/testing/proc_fs.h"
#include "tests/testing/process.h"
#include "tests/testing/test_directory.h"
#include "worker/checkpoint_directory.h"

namespace psring {
namespace {

// More than there is time for: the job is stopped when all have tried.
constexpr int kSteps = 10'000'000;
constexpr int64_t kMaxGrowth = 64'000'000;
// For which an attack lasts, and trainings are watched without one.
constexpr absl::Duration kAttack = absl::Milliseconds(1000);

// ZMTP's frame of `size` bytes, 256 at least; `flags`: 1 more, 4 a command.
std::string LongFrame(int flags, size_t size) {
  std::string frame(1, static_cast<char>(flags | 2));
  for (int shift = 56; shift >= 0; shift -= 8) {
    frame.push_back(static_cast<char>(size >> shift));
  }
  return frame + std::string(size, 'x');
}

struct Attack {
  const char* name;
  size_t crowd;  // at each port
  // `greeting`: as the port expects it.
  Speech (*speech)(const std::string& greeting);
};

std::function<std::string()> Always(std::string opening) {
  return [opening = std::move(opening)] { return opening; };
}

// Of a greeting and what follows it: it is ready to hear messages.
constexpr size_t kReadyBytes = 100;

// Joins that a coordinator without a key refuses, each in words: as many as a
// connection may send, none of which says that it has heard.
std::string RefusedJoins() {
  proto::ControlMessage join;
  join.mutable_join()->set_host("stranger");
  const std::string text = join.SerializeAsString();
  Link link;
  std::string bytes;
  while (bytes.size() < 15 << 10) {
    const auto header = Encode(link.Next());
    bytes += {'\1', static_cast<char>(header.size())};  // more follows
    bytes.append(header.data(), header.size());
    bytes += {'\0', static_cast<char>(text.size())};
    bytes += text;
  }
  return bytes;
}

const Attack kAttacks[] = {
    {"a message that never ends", 4,
     [](const std::string& greeting) {
       return Speech{Always(greeting + ZmtpReady()), LongFrame(1, 1 << 20), {}};
     }},
    // Before anybody looks, each may have sent nearly all of its 4 MB.
    {"a large first command that never ends", 7,
     [](const std::string& greeting) {
       const std::string command = LongFrame(4, 4 << 20);
       return Speech{
           Always(greeting + command.substr(0, command.size() - 1)), "", {}};
     }},
    {"a flood of messages", 4,
     [](const std::string& greeting) {
       return Speech{
           Always(greeting + ZmtpReady()), std::string("\0\4none", 6), {}};
     }},
    {"Joins that are refused, and no word of it heard", 64,
     [](const std::string& greeting) {
       return Speech{[greeting] { return greeting + ZmtpReady(); },
                     RefusedJoins(), absl::ZeroDuration(), kReadyBytes};
     }},
    {"10,000 connections that say nothing", 10000,
     [](const std::string&) {
       return Speech{Always(""), "", {}};
     }},
    {"512 connections that greet a byte at a time", 512,
     [](const std::string& greeting) {
       return Speech{Always(greeting), "", absl::Milliseconds(100)};
     }},
    {"connections that are reset at once", 64,
     [](const std::string&) {
       return Speech{Always(""), "", {}, /*awaits=*/0, /*leaves=*/true};
     }},
    {"garbage", 16,
     [](const std::string&) {
       std::string bytes;
       for (int i = 0; i < 1 << 16; ++i) {
         bytes.push_back(static_cast<char>(i * 2654435761u >> 13));
       }
       return Speech{Always(bytes), "", {}};
     }},
};

int64_t PeakMemory(pid_t pid) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  std::string word;
  int64_t kib = 0;
  while (status >> word && word != "VmHWM:") {
  }
  status >> kib;
  return kib * 1024;
}

int Epochs(const Process& worker) {
  const std::string output = worker.Output();
  int epochs = 0;
  for (size_t at = 0; (at = output.find(" epoch ", at)) != output.npos; ++at) {
    ++epochs;
  }
  return epochs;
}

// (mode, whether the job has a key)
class StrangersTest
    : public ::testing::TestWithParam<std::tuple<std::string, bool>> {
 protected:
  StrangersTest() : job_(Options()) {
    AllowAllFiles();  // 10,000 connections are as many
    LeaveCoreToStrangers();
  }

  static bool keyed() { return std::get<1>(GetParam()); }

  HandJobOptions Options() const {
    HandJobOptions options;
    options.mode = std::get<0>(GetParam());
    options.worker_flags = SmallTraining(kSteps, dir_);
    options.cluster_flags = kMessages;
    options.cluster_flags.push_back(
        keyed() ? absl::StrCat("--key-file=", KeyFile()) : "--insecure");
    return options;
  }

  static std::string KeyFile() {
    const std::string path =
        absl::StrCat(testing::TestDirectory("-key"), "/key");
    if (!std::ifstream(path)) {
      EXPECT_EQ(RunProcess({PsringBinary(), "keygen", "--force",
                            absl::StrCat("--key-file=", path)},
                           Soon())
                    .code,
                0);
    }
    return path;
  }

  // As ZMTP names what the port asks of its peers.
  std::string MechanismAt(int port) const {
    if (keyed()) return "CURVE";
    return port == job_.port() ? "NULL" : "PLAIN";
  }

  std::map<std::string, int64_t> Peaks() {
    std::map<std::string, int64_t> peaks;
    for (const std::string& name : job_.names()) {
      peaks[name] = PeakMemory(job_[name].pid());
    }
    return peaks;
  }

  // Seconds for an epoch, while `watch` passes and at least some of them do.
  double EpochTime(absl::Duration watch) {
    const Time begin = Now(), deadline = Soon();
    const int first = Epochs(job_["worker 0"]);
    int epochs = 0;
    while ((Now() < begin + watch || epochs < 3) && Now() < deadline) {
      if (job_["worker 0"].Wait(Now() + absl::Milliseconds(50)) != -1) break;
      epochs = Epochs(job_["worker 0"]) - first;
    }
    for (const std::string& name : job_.names()) {
      EXPECT_EQ(job_[name].Wait(Now()), -1)
          << name << " has ended: " << LastLine(job_[name].Output());
    }
    EXPECT_GE(epochs, 3) << "it trains no more";
    return absl::ToDoubleSeconds(Now() - begin) / epochs;
  }

  void Meet(const Attack& attack, double alone) {
    const auto before = Peaks();
    std::deque<Strangers> strangers;
    for (const std::string& name : job_.names()) {
      for (const int port : ListeningPorts(job_[name].pid())) {
        strangers.emplace_back(port, attack.crowd,
                               attack.speech(ZmtpGreeting(MechanismAt(port))));
      }
    }
    const Time deadline = Soon();
    for (const Strangers& crowd : strangers) {
      while (crowd.requests() < attack.crowd && Now() < deadline) {
        EXPECT_EQ(job_["worker 0"].Wait(Now() + absl::Milliseconds(5)), -1);
      }
      EXPECT_GE(crowd.requests(), attack.crowd);
    }
    const double meanwhile = EpochTime(kAttack);
    int64_t growth = 0;
    for (const auto& [name, peak] : Peaks()) {
      EXPECT_LE(peak - before.at(name), kMaxGrowth)
          << attack.name << " at " << name;
      growth = std::max(growth, peak - before.at(name));
    }
    int64_t connections = 0, bytes = 0;
    for (const Strangers& crowd : strangers) {
      connections += crowd.connections();
      bytes += crowd.bytes();
    }
    std::printf(
        "%-45s %-5s %-6s %6ld connections %6.0f MB said: memory +%.1f MB, "
        "step time x%.2f\n",
        attack.name, std::get<0>(GetParam()).c_str(),
        keyed() ? "key" : "no key", connections,
        static_cast<double>(bytes) / 1e6, static_cast<double>(growth) / 1e6,
        meanwhile / alone);
    std::fflush(stdout);
  }

  const std::string dir_ = testing::TestDirectory();
  HandJob job_;
};

TEST_P(StrangersTest, TakeNeitherMemoryNorTime) {
  job_.StartAll();
  job_.TrainFor(absl::ZeroDuration());
  const double alone = EpochTime(kAttack);
  for (const Attack& attack : kAttacks) {
    Meet(attack, alone);
    if (HasFailure()) return;
  }
  job_["worker 0"].Signal(SIGTERM);
  job_.ExpectAllEndWell();
  const auto checkpoints = CheckpointsIn(dir_);
  ASSERT_TRUE(checkpoints.ok() && checkpoints->size() == 1);
  const CheckpointEntry& saved = checkpoints->front();
  EXPECT_EQ(CheckpointDifference(saved.path, UndisturbedCheckpoint(
                                                 static_cast<int>(saved.step))),
            "");
}

INSTANTIATE_TEST_SUITE_P(
    Jobs, StrangersTest,
    ::testing::Values(std::tuple("ps", true), std::tuple("ps", false),
                      std::tuple("ring", true), std::tuple("ring", false)),
    [](const auto& test) {
      return absl::StrCat(std::get<0>(test.param),
                          std::get<1>(test.param) ? "WithAKey" : "WithoutAKey");
    });

}  // namespace
}  // namespace psring
