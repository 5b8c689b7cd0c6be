#include "common/trace/timeline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "nlohmann/json.hpp"
#include "tests/testing/soon.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;
using testing::TestDirectory;

proto::Welcome JobOfTwo() {
  proto::Welcome job;
  job.set_rank(1);
  for (int rank = 0; rank < 2; ++rank) {
    proto::Process* worker = job.add_workers();
    worker->set_role(proto::WORKER);
    worker->set_rank(rank);
    worker->set_host("host \"b\"");
  }
  return job;
}

std::unique_ptr<Timeline> Start(
    const TimelineOptions& options,
    Timeline::ClockSource clock = [] { return std::nullopt; }) {
  auto timeline =
      Timeline::Create(options, proto::WORKER, JobOfTwo(), std::move(clock));
  EXPECT_TRUE(timeline.ok()) << timeline.status();
  return *std::move(timeline);
}

// None where the file is being written at this moment.
json EventsIn(const std::string& directory) {
  std::ifstream file(directory + "/worker-1.trace.json");
  json events = json::parse(file, nullptr, /*allow_exceptions=*/false);
  return events.is_array() ? events : json::array();
}

json Named(const json& events, const std::string& name) {
  json found = json::array();
  for (const json& event : events) {
    if (event["name"] == name) found.push_back(event);
  }
  return found;
}

size_t NumThreads() {
  return std::distance(fs::directory_iterator("/proc/self/task"), {});
}

TEST(Timeline, IsNothingWithoutADirectory) {
  const size_t before = NumThreads();
  const auto timeline = Start({});
  EXPECT_EQ(timeline, nullptr);
  EXPECT_EQ(NumThreads(), before);
  EXPECT_EQ(AddTrack(timeline.get(), "trainer"), nullptr);
  TimelineSpan span(nullptr, "forward");
}

TEST(Timeline, SaysWhoDidWhatWhen) {
  const std::string directory = TestDirectory() + "/new";
  {
    const auto timeline = Start({.directory = directory}, [] {
      return ClockOffset{absl::Nanoseconds(-1500), absl::Microseconds(80),
                         Time::FromNanos(7)};
    });
    Track* track = AddTrack(timeline.get(), "trainer");
    TimelineSpan outer(track, "step", {.step = 7});
    TimelineSpan inner(
        track, "send",
        {.bytes = 12, .bucket = 3, .peer = 0, .peer_role = "ps"});
    TimelineSpan nothing(track, "receive");
    nothing.Drop();
    inner.End();
  }
  const json events = EventsIn(directory);
  const json about = Named(events, "psring")[0]["args"];
  EXPECT_EQ(about["role"], "worker");
  EXPECT_EQ(about["rank"], 1);
  EXPECT_EQ(about["host"], "host \"b\"");
  EXPECT_EQ(
      Named(events, "psring_clock")[0]["args"],
      json({{"ahead_ns", -1500}, {"round_trip_ns", 80'000}, {"at_ns", 7}}));
  EXPECT_EQ(Named(events, "thread_name")[0]["args"]["name"], "trainer");
  EXPECT_EQ(Named(events, "receive").size(), 0u);
  const json send = Named(events, "send")[0];
  EXPECT_EQ(send["ph"], "X");
  EXPECT_EQ(send["args"],
            json({{"bytes", 12}, {"bucket", 3}, {"peer", "ps 0"}}));
  const json step = Named(events, "step")[0];
  EXPECT_EQ(step["args"], json({{"step", 7}}));
  EXPECT_LE(step["ts"], send["ts"]);
  EXPECT_GE(step["ts"].get<double>() + step["dur"].get<double>(),
            send["ts"].get<double>() + send["dur"].get<double>());
}

TEST(Timeline, EventsReachTheFileWhileTheProcessRuns) {
  const std::string directory = TestDirectory();
  const auto timeline = Start({.directory = directory});
  Track* track = AddTrack(timeline.get(), "trainer");
  { TimelineSpan span(track, "forward"); }
  const Time end = Soon();
  while (Named(EventsIn(directory), "forward").empty()) {
    ASSERT_LT(Now(), end);
    std::this_thread::yield();
  }
}

TEST(Timeline, LosesNoEventOfSeveralThreadsOrSaysSo) {
  constexpr int kEvents = 30000;
  const std::string directory = TestDirectory();
  int64_t lost = 0;
  {
    const auto timeline = Start({.directory = directory});
    std::vector<std::thread> threads;
    std::vector<Track*> tracks;
    for (int t = 0; t < 3; ++t) {
      tracks.push_back(AddTrack(timeline.get(), absl::StrCat("thread ", t)));
      threads.emplace_back([track = tracks.back()] {
        for (int i = 0; i < kEvents; ++i) {
          TimelineSpan span(track, "work", {.step = i});
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (Track* track : tracks) lost += track->lost();
  }
  int64_t found = 0, told = 0;
  for (const json& event : EventsIn(directory)) {
    const std::string name = event["name"];
    if (name == "work") ++found;
    if (absl::StartsWith(name, "lost ")) told += std::stoll(name.substr(5));
  }
  EXPECT_EQ(found + lost, 3 * kEvents);
  EXPECT_EQ(told, lost);
}

TEST(Timeline, SaysInTheFileThatItIsFull) {
  const std::string directory = TestDirectory();
  {
    const auto timeline = Start({.directory = directory, .max_mb = 1});
    Track* track = AddTrack(timeline.get(), "trainer");
    // Some 100 bytes each; the buffer may lose some of them.
    const Time end = Soon();
    while (Named(EventsIn(directory), "full: --timeline-mb=1").empty()) {
      ASSERT_LT(Now(), end);
      for (int i = 0; i < 8000; ++i) TimelineSpan span(track, "work");
    }
  }
  EXPECT_LE(fs::file_size(directory + "/worker-1.trace.json"), 1u << 20);
  EXPECT_GT(EventsIn(directory).size(), 1000u);
}

TEST(Timeline, ADirectoryThatCannotBeWrittenIsNamedWithItsFlag) {
  const auto timeline =
      Timeline::Create({.directory = "/dev/null/t"}, proto::WORKER, JobOfTwo(),
                       [] { return std::nullopt; });
  EXPECT_THAT(std::string(timeline.status().message()),
              HasSubstr("--timeline: cannot make /dev/null/t"));
}

}  // namespace
}  // namespace psring
