// --timeline of real jobs, and what `psring timeline` makes of it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/clock.h"
#include "nlohmann/json.hpp"
#include "tests/integration/hand_job.h"
#include "tests/integration/launched_job.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::TestDirectory;

json EventsIn(const std::string& path) {
  std::ifstream file(path);
  return json::parse(file, nullptr, /*allow_exceptions=*/false);
}

Ran RunTimeline(const Flags& args) {
  Flags argv = {PsringBinary(), "timeline"};
  argv.insert(argv.end(), args.begin(), args.end());
  return RunProcess(argv, Soon());
}

// Trains with two workers, of which some may be slow.
void Train(const std::string& mode, const std::string& directory,
           const Flags& more = {}) {
  LaunchedJob job = {
      .mode = mode,
      .launch_flags = {"--timeline=" + directory},
      .worker_flags = {"--model=lenet", "--data=digits:train=512,test=64",
                       "--batch-size=32", "--steps=30"}};
  job.worker_flags.insert(job.worker_flags.end(), more.begin(), more.end());
  // What uses freed memory as it ends shall notice.
  setenv("MALLOC_PERTURB_", "165", /*overwrite=*/1);
  const Ran ran = RunLaunch(job);
  ASSERT_EQ(ran.code, 0) << ran.output;
}

class TimelineOf : public ::testing::TestWithParam<std::string> {
 protected:
  const std::string directory_ = TestDirectory();
};

INSTANTIATE_TEST_SUITE_P(Modes, TimelineOf, ::testing::Values("ps", "ring"),
                         [](const auto& info) { return info.param; });

TEST_P(TimelineOf, IsValidJsonAfterKill) {
  HandJob job({.mode = GetParam(),
               .worker_flags = EndlessTraining(),
               .cluster_flags = {"--timeline=" + directory_}});
  const auto file_of = [&](const std::string& name) {
    return absl::StrCat(directory_, "/",
                        std::string(absl::StrReplaceAll(name, {{" ", "-"}})),
                        ".trace.json");
  };
  job.StartAll();
  const Time end = Soon();
  for (const std::string& name : job.names()) {
    while (EventsIn(file_of(name)).size() <= 100u) {
      ASSERT_LT(Now(), end) << file_of(name);
      absl::SleepFor(absl::Milliseconds(50));
    }
  }
  for (const std::string& name : job.names()) job[name].Signal(SIGKILL);
  for (const std::string& name : job.names()) {
    job[name].Wait(Soon());
    const json events = EventsIn(file_of(name));
    ASSERT_TRUE(events.is_array()) << file_of(name);
    EXPECT_GT(events.size(), 100u) << file_of(name);
  }
}

TEST_P(TimelineOf, NamesTheStragglerAsTheOneThatIsWaitedFor) {
  // So slow that others' halts, on a busy machine, are short beside it.
  Train(GetParam(), directory_, {"--slow=worker:1:x12"});
  const Ran ran = RunTimeline({"explain", directory_});
  ASSERT_EQ(ran.code, 0) << ran.output;
  std::vector<std::string> lines = absl::StrSplit(ran.output, '\n');
  const auto table =
      std::find_if(lines.begin(), lines.end(), [](const std::string& line) {
        return absl::StartsWith(line, "waited for");
      });
  ASSERT_GE(lines.end() - table, 3) << ran.output;
  EXPECT_TRUE(absl::StartsWith(table[2], "worker 1 ")) << ran.output;
}

TEST(Timeline, OfAJobIsMergedInOrderWithClocksThatAgree) {
  const std::string directory = TestDirectory();
  Train("ps", directory);
  const Ran ran = RunTimeline({"merge", directory});
  ASSERT_EQ(ran.code, 0) << ran.output;
  const json events = EventsIn(directory + "/timeline.json");
  ASSERT_TRUE(events.is_array());
  std::set<std::string> processes;
  std::map<int64_t, double> first_update, last_arrival, last_answer;
  double tolerance = 0, last = 0;
  for (const json& event : events) {
    const std::string name = event["name"];
    if (name == "process_name") {
      const std::string title = event["args"]["name"];
      processes.insert(title.substr(0, title.find(',')));
    }
    if (name == "psring_clock") {
      tolerance = std::max(tolerance,
                           event["args"]["round_trip_ns"].get<double>() / 1e3);
    }
    if (event["ph"] != "X") continue;
    const double begin = event["ts"], end = begin + event["dur"].get<double>();
    EXPECT_GE(begin, last);
    last = begin;
    if (!event["args"].contains("step")) continue;
    const int64_t step = event["args"]["step"];
    if (name == "update" && !first_update.contains(step)) {
      first_update[step] = begin;
    }
    if (name == "submit") {
      last_arrival[step] = std::max(last_arrival[step], begin);
    }
    if (name == "wait") last_answer[step] = std::max(last_answer[step], end);
  }
  EXPECT_EQ(processes, (std::set<std::string>{"ps 0", "worker 0", "worker 1"}));
  EXPECT_EQ(first_update.size(), 30u);
  // A server updates after the last worker has come, and before the last one
  // goes on.
  for (const auto& [step, begin] : first_update) {
    EXPECT_GE(begin + tolerance, last_arrival[step]) << step;
    EXPECT_LE(begin - tolerance, last_answer[step]) << step;
  }
}

TEST(Timeline, ShowsTheEncodingOfEveryBucket) {
  const std::string directory = TestDirectory();
  Train("ps", directory, {"--compress=int8"});
  int64_t encoded = 0;
  double backward_ms = 0;
  for (const json& event : EventsIn(directory + "/worker-0.trace.json")) {
    if (event["name"] == "backward") {
      backward_ms += event["dur"].get<double>() / 1000 / 30;
    }
    if (event["name"] != "encode") continue;
    EXPECT_EQ(event["args"]["step"], encoded);
    EXPECT_EQ(event["args"]["bucket"], 0);
    ++encoded;
  }
  EXPECT_EQ(encoded, 30);
  const Ran ran = RunTimeline({"explain", directory});
  const std::vector<std::string> lines = absl::StrSplit(ran.output, '\n');
  EXPECT_THAT(lines[0], HasSubstr("backward  encoding  injected"));
  // worker, 0, steps, step, data, forward, backward, encoding
  const std::vector<std::string> cells =
      absl::StrSplit(lines[2], ' ', absl::SkipEmpty());
  ASSERT_GT(cells.size(), 7u) << ran.output;
  EXPECT_NE(cells[7], "0.00");
  // Buckets leave while backward runs.
  EXPECT_NEAR(std::stod(cells[6]) + std::stod(cells[7]), backward_ms, 0.02);
}

TEST(Timeline, OfLostFilesIsAnErrorThatNamesThem) {
  const std::string directory = TestDirectory();
  const Ran none = RunTimeline({"explain", directory});
  EXPECT_EQ(none.code, 1);
  EXPECT_THAT(none.output, HasSubstr(directory + "/worker-0.trace.json"));
  Train("ring", directory);
  fs::resize_file(directory + "/worker-1.trace.json", 1000);
  for (const char* command : {"explain", "merge"}) {
    const Ran ran = RunTimeline({command, directory});
    EXPECT_EQ(ran.code, 1);
    EXPECT_THAT(ran.output,
                HasSubstr(directory + "/worker-1.trace.json is damaged"));
  }
}

TEST(Timeline, StopsAtItsSizeWhileTrainingGoesOn) {
  const std::string directory = TestDirectory();
  HandJob job(
      {.mode = "ring",
       .worker_flags = EndlessTraining(),
       .cluster_flags = {"--timeline=" + directory, "--timeline-mb=1"}});
  job.StartAll();
  ASSERT_TRUE(job["worker 0"].WaitForOutput(
      "the timeline ends here; training continues: full: --timeline-mb=1",
      Soon()))
      << job["worker 0"].Output();
  EXPECT_EQ(job["worker 0"].Wait(Now() + absl::Milliseconds(50)), -1);
  EXPECT_LE(fs::file_size(directory + "/worker-0.trace.json"), 1u << 20);
  EXPECT_TRUE(EventsIn(directory + "/worker-0.trace.json").is_array());
}

}  // namespace
}  // namespace psring
