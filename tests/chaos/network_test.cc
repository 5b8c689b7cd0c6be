// Connections that break while a job runs: nothing is lost, and nothing comes
// twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "tests/integration/hand_job.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

constexpr int kSteps = 600;

struct Way {
  std::string mode;
  Flags flags;
  bool synchronous = true;
};

void PrintTo(const Way& way, std::ostream* out) {
  *out << way.mode << (way.flags.empty() ? "" : way.flags[0]);
}

class NetworkTest : public ::testing::TestWithParam<Way> {
 protected:
  // How often servers have applied a gradient to a piece.
  static int64_t Updates(const std::string& dir) {
    int64_t updates = 0;
    for (int server = 0; server < 2; ++server) {
      std::ifstream file(absl::StrCat(dir, "/metrics/ps-", server, ".jsonl"));
      std::string line;
      while (std::getline(file, line)) {
        const auto event = nlohmann::json::parse(line);
        if (event.contains("updates"))
          updates += event["updates"].get<int64_t>();
      }
    }
    return updates;
  }

  // Trains in `dir`; the connections of each process are cut as `cuts` says.
  void Train(const std::string& dir, const std::string& cuts) {
    HandJobOptions options{.mode = GetParam().mode, .servers = 2, .workers = 3};
    options.worker_flags.back() = absl::StrCat("--steps=", kSteps);
    options.worker_flags.push_back("--checkpoint-dir=" + dir);
    // So that all goes over TCP.
    options.cluster_flags = {"--same-host=off",
                             "--metrics-dir=" + dir + "/metrics"};
    for (const std::string& flag : GetParam().flags) {
      options.worker_flags.push_back(flag);
    }
    const std::vector<std::string> names = HandJob(options).names();
    for (const std::string& name : names) {
      if (cuts.empty()) break;
      options.env[name] = {{"LD_PRELOAD", "tests/chaos/libconnection_cuts.so"},
                           {"PSRING_CONNECTION_CUTS", cuts}};
    }
    HandJob job(options);
    job.StartAll();
    job.ExpectAllEndWell();
    if (cuts.empty()) return;
    for (const std::string& name : names) {
      for (absl::string_view line : absl::StrSplit(job[name].Output(), '\n')) {
        if (absl::EndsWith(line, " connections were cut")) {
          cut_ += std::stoll(std::string(line));
        }
      }
    }
  }

  const std::string folder_ = testing::TestDirectory();
  int64_t cut_ = 0;  // connections
};

TEST_P(NetworkTest, BrokenConnectionsChangeNothing) {
  const std::string calm = folder_ + "/calm";
  Train(calm, "");
  for (const std::string cuts : {"100,0", "200,0,one-way", "2500,700"}) {
    const std::string dir = absl::StrCat(folder_, "/", cuts);
    Train(dir, cuts);
    EXPECT_EQ(Updates(dir), Updates(calm)) << cuts;
    if (!GetParam().synchronous) continue;
    EXPECT_EQ(CheckpointDifference(CheckpointAt(calm, kSteps),
                                   CheckpointAt(dir, kSteps)),
              "")
        << cuts;
  }
  EXPECT_GE(cut_, 100);
}

INSTANTIATE_TEST_SUITE_P(
    Ways, NetworkTest,
    ::testing::Values(Way{"ring", {}}, Way{"ps", {}},
                      Way{"ps", {"--sync=ssp", "--staleness=2"}, false},
                      Way{"ps", {"--sync=async"}, false}));

}  // namespace
}  // namespace psring
