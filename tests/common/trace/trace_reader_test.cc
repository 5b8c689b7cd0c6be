#include "common/trace/trace_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/trace/trace_merge.h"
#include "nlohmann/json.hpp"
#include "tests/common/trace/trace_head.h"
#include "tests/testing/test_directory.h"

namespace psring {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using testing::ClockEvent;
using ::testing::HasSubstr;
using testing::ProcessEvent;
using testing::ReadFile;
using ::testing::StartsWith;
using testing::TestDirectory;
using testing::WriteFile;

// Of a ring of two, whose clock the coordinator's is `ahead_ns` ahead of.
json TraceOf(int rank, int64_t origin_ns, int64_t ahead_ns,
             const std::string& job = "1f") {
  return {ProcessEvent({.rank = rank,
                        .job = job,
                        .workers = 2,
                        .origin_ns = origin_ns,
                        .date_ns = 1'000'000 + 10 * rank}),
          ClockEvent(7, 900),
          ClockEvent(ahead_ns, 400),
          {{"name", "wait"},
           {"ph", "X"},
           {"pid", rank + 1},
           {"tid", 1},
           {"ts", 1.5},
           {"dur", 2.0},
           {"args", {{"step", 3}}}}};
}

class TraceReader : public ::testing::Test {
 protected:
  TraceReader() {
    Write(0, TraceOf(0, 5000, 0).dump());
    Write(1, TraceOf(1, 1000, 3000).dump());
  }

  std::string PathOf(int rank) const {
    return absl::StrCat(folder_, "/worker-", rank, ".trace.json");
  }
  void Write(int rank, const std::string& text) {
    WriteFile(PathOf(rank), text);
  }
  absl::StatusOr<std::vector<TraceInfo>> Read() const {
    return ReadTraces(folder_, [](size_t, const json&) {});
  }
  std::string Error() const { return std::string(Read().status().message()); }

  const std::string folder_ = TestDirectory();
};

TEST_F(TraceReader, TellsTheProcessesAndTheirClocks) {
  const auto infos = Read();
  ASSERT_TRUE(infos.ok()) << infos.status();
  ASSERT_EQ(infos->size(), 2u);
  EXPECT_EQ((*infos)[1].rank, 1);
  ASSERT_EQ((*infos)[1].clock.size(), 1u);
  EXPECT_EQ((*infos)[1].clock[0].round_trip_ns, 400);
  EXPECT_EQ((*infos)[0].CommonNs(1.5), 6500);
  EXPECT_EQ((*infos)[1].CommonNs(1.5), 5500);
}

TEST_F(TraceReader, TakesTheBestClockOfAFileThatDoesNotSayWhen) {
  json trace = TraceOf(1, 1000, 3000);
  for (const int clock : {1, 2}) trace[clock]["args"].erase("at_ns");
  Write(1, trace.dump());
  const auto infos = Read();
  ASSERT_TRUE(infos.ok()) << infos.status();
  EXPECT_EQ((*infos)[1].CommonNs(1.5), 5500);
}

// The clocks of two hosts, an hour of which are 3,600.05 s of the other.
TEST_F(TraceReader, AClockThatRunsAwayIsFollowed) {
  constexpr int64_t kHour = 3'600'000'000'000;
  json trace = TraceOf(1, 1000, 3000);
  trace.push_back(ClockEvent(3000 + 50'000'000, 400, kHour));
  Write(1, trace.dump());
  const auto infos = Read();
  ASSERT_TRUE(infos.ok()) << infos.status();
  const double origin_us = 1;
  for (const auto& [at, ahead] : std::vector<std::pair<int64_t, int64_t>>{
           {1000, 3000},
           {kHour / 2, 3000 + 25'000'000},
           {kHour, 3000 + 50'000'000},
           {2 * kHour, 3000 + 50'000'000}}) {
    const double ts = static_cast<double>(at) / 1000 - origin_us;
    EXPECT_EQ((*infos)[1].CommonNs(ts), at + ahead) << at;
  }
}

TEST_F(TraceReader, PlacesAProcessWithoutAnAlignedClockByItsDate) {
  json trace = TraceOf(1, 77'000, 0);
  trace.erase(trace.begin() + 1, trace.begin() + 3);
  Write(1, trace.dump());
  const auto infos = Read();
  ASSERT_TRUE(infos.ok()) << infos.status();
  EXPECT_TRUE((*infos)[1].clock.empty());
  EXPECT_EQ((*infos)[1].CommonNs(0), (*infos)[0].CommonNs(0) + 10);
}

TEST_F(TraceReader, MergesByTheCoordinatorsClock) {
  const std::string out = folder_ + "/all.json";
  ASSERT_TRUE(MergeTraces(folder_, out).ok());
  const json events = json::parse(ReadFile(out));
  ASSERT_EQ(events.size(), 8u);
  EXPECT_EQ(events[6]["pid"], 2);
  EXPECT_EQ(events[6]["ts"], 0.0);
  EXPECT_EQ(events[6]["args"]["step"], 3);
  EXPECT_EQ(events[7]["pid"], 1);
  EXPECT_EQ(events[7]["ts"], 1.0);
}

TEST_F(TraceReader, NamesADamagedFile) {
  const std::string whole = ReadFile(PathOf(1));
  for (const std::string& text :
       {whole.substr(0, whole.size() / 2), whole + "]", std::string(),
        std::string("[{\"name\":3}]")}) {
    Write(1, text);
    EXPECT_THAT(Error(), StartsWith(PathOf(1) + " is damaged")) << text;
  }
  for (const char* text : {"{}", "[]", "[1,2]"}) {
    Write(1, text);
    EXPECT_THAT(Error(), StartsWith(PathOf(1) + " is not a timeline")) << text;
  }
}

// As where one byte of the room for events to come has changed.
TEST_F(TraceReader, QuotesLittleOfADamagedFile) {
  Write(1, "[\"" + std::string(1 << 20, ' ') + "]");
  EXPECT_THAT(Error(), StartsWith(PathOf(1) + " is damaged"));
  EXPECT_LT(Error().size(), PathOf(1).size() + 400);
}

TEST_F(TraceReader, TimesThatNobodyCanAddAreDamage) {
  json trace = TraceOf(1, 1000, 3000);
  trace[3]["dur"] = 1e300;
  Write(1, trace.dump());
  EXPECT_THAT(Error(), HasSubstr("a number is out of its bounds"));
  Write(1, TraceOf(1, INT64_MAX, 3000).dump());
  EXPECT_THAT(Error(), HasSubstr("a number is out of its bounds"));
  trace = TraceOf(1, 1000, 3000);
  trace.push_back(ClockEvent(0, 0, -1));
  Write(1, trace.dump());
  EXPECT_THAT(Error(), HasSubstr("a number is out of its bounds"));
  trace = TraceOf(1, 1000, 3000);
  trace[0]["args"]["date_ns"] = 1e300;
  Write(1, trace.dump());
  EXPECT_THAT(Error(), HasSubstr("is damaged"));
}

// Whoever copies or writes it would take a stack as deep.
TEST_F(TraceReader, AnEventThatIsNestedTooDeeplyIsDamage) {
  const std::string whole = TraceOf(1, 1000, 3000).dump();
  for (const char* brackets : {"[]", "{}"}) {
    std::string args;
    for (int i = 0; i < 100000; ++i) {
      args += brackets[0] == '[' ? "[" : "{\"a\":";
    }
    args += "1" + std::string(100000, brackets[1]);
    Write(1, whole.substr(0, whole.size() - 1) +
                 R"(,{"name":"deep","ph":"X","ts":1,"args":)" + args + "}]");
    EXPECT_THAT(Error(), StartsWith(PathOf(1) + " is damaged (an event is "
                                                "nested too deeply"));
  }
  Write(1, whole.substr(0, whole.size() - 1) +
               R"(,{"name":"a","ph":"X","ts":1,"args":{"a":[{"b":1}]}}])");
  EXPECT_TRUE(MergeTraces(folder_, absl::StrCat(folder_, "/all.json")).ok());
}

TEST_F(TraceReader, AFileOfAnotherProcessIsDamage) {
  Write(1, TraceOf(0, 1000, 3000).dump());
  EXPECT_THAT(Error(),
              StartsWith(PathOf(1) + " is damaged (it is the timeline of "
                                     "worker 0 of 2 workers"));
  for (const int workers : {0, 1}) {
    json trace = TraceOf(1, 1000, 3000);
    trace[0]["args"]["workers"] = workers;
    Write(1, trace.dump());
    EXPECT_THAT(Error(), StartsWith(PathOf(1) + " is damaged")) << workers;
  }
}

TEST_F(TraceReader, NamesAMissingFile) {
  std::filesystem::remove(PathOf(1));
  EXPECT_THAT(Error(), StartsWith(PathOf(1) + " is missing"));
  std::filesystem::remove(PathOf(0));
  EXPECT_THAT(Error(), StartsWith(PathOf(0) + " is missing"));
}

// As of another user's folder, which this one may not look into.
TEST_F(TraceReader, AFolderThatCannotBeLookedAtIsAnError) {
  const auto read = [](const std::string& folder) {
    return ReadTraces(folder, [](size_t, const json&) {}).status();
  };
  const std::string long_name =
      absl::StrCat(folder_, "/", std::string(300, 'a'));
  EXPECT_EQ(read(long_name).message(),
            absl::StrCat("there is no folder ", long_name,
                         " (File name too long): name the one of a run's "
                         "--timeline"));
  // There is one, in which a file's path would be too long.
  const std::string deep = folder_ + std::string(4090 - folder_.size(), '/');
  EXPECT_THAT(std::string(read(deep).message()),
              AllOf(StartsWith("cannot read "),
                    HasSubstr("worker-0.trace.json: File name too long")));
}

TEST_F(TraceReader, NamesAFileOfAnotherJob) {
  Write(1, TraceOf(1, 1000, 3000, "2a").dump());
  EXPECT_THAT(Error(),
              StartsWith(PathOf(1) + " is of another job than " + PathOf(0)));
}

TEST_F(TraceReader, NamesAnOutputThatCannotBeWritten) {
  const auto merged = MergeTraces(folder_, "/dev/null/all.json");
  EXPECT_THAT(std::string(merged.status().message()),
              HasSubstr("cannot write /dev/null/all.json"));
}

// As on a full disk.
TEST_F(TraceReader, LeavesNoHalfOfAnOutput) {
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit little = before;
  little.rlim_cur = 100;
  const auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &little), 0);
  const std::string out = folder_ + "/all.json";
  const auto status = MergeTraces(folder_, out).status();
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(status.message(),
            absl::StrCat("cannot write ", out, ": File too large"));
  EXPECT_FALSE(std::filesystem::exists(out));
}

}  // namespace
}  // namespace psring
