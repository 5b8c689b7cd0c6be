// common/trace/: timelines of two workers, which are read, merged and
// explained.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/trace/step_reader.h"
#include "common/trace/step_times.h"
#include "common/trace/trace_merge.h"
#include "nlohmann/json.hpp"
#include "tests/common/trace/trace_head.h"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

using nlohmann::json;

// Of what a timeline may say of its clocks.
constexpr uint64_t kMostNs = (uint64_t{1} << 59) - 1;

json TraceOf(int rank, int workers) {
  json trace = {testing::ProcessEvent({.rank = rank,
                                       .workers = workers,
                                       .origin_ns = 5000,
                                       .date_ns = 1000000 + rank}),
                testing::ClockEvent(7, 900)};
  double ts = 1.5;
  for (const char* name : {"data", "forward", "backward", "encode", "device",
                           "slow", "wait", "step"}) {
    trace.push_back({{"name", name},
                     {"ph", "X"},
                     {"pid", rank + 1},
                     {"tid", 1},
                     {"ts", ts += 2},
                     {"dur", 2.5},
                     {"args", {{"step", 3}}}});
  }
  trace.push_back({{"name", "await"},
                   {"ph", "X"},
                   {"ts", ts},
                   {"dur", 1.0},
                   {"args", {{"step", 3}, {"peer", "ps 0"}}}});
  for (const char* name : {"gpu step", "gpu forward", "gpu wait"}) {
    if (rank == 0) continue;
    trace.push_back({{"name", name},
                     {"ph", "X"},
                     {"ts", ts += 2},
                     {"dur", 2.5},
                     {"args", {{"step", 3}}}});
  }
  trace.push_back({{"name", "12 events were lost"}, {"ph", "i"}});
  return trace;
}

// A timeline's file of `events`, whatever they are, with a head that fits.
std::string FileOf(int rank, int workers, bool clock, uint64_t ns,
                   const std::string& events) {
  testing::TraceHead head = {.rank = rank, .workers = workers};
  head.origin_ns = static_cast<int64_t>(ns & kMostNs);
  head.date_ns = static_cast<int64_t>(ns << 1 & kMostNs);
  std::string file = absl::StrCat("[", testing::ProcessEvent(head).dump());
  if (clock) {
    const auto ahead_ns = static_cast<int64_t>(ns >> 3 & kMostNs);
    for (const auto& [sign, at_ns] :
         {std::pair{1, int64_t{0}}, std::pair{-1, head.origin_ns}}) {
      absl::StrAppend(&file, ",",
                      testing::ClockEvent(
                          ns % 2 == 0 ? sign * ahead_ns : ahead_ns, 900, at_ns)
                          .dump());
    }
  }
  return absl::StrCat(file, ",", events, "]");
}

// Only events: all but the head of `trace`.
std::string EventsOf(const json& trace) {
  std::string events;
  for (size_t i = 2; i < trace.size(); ++i) {
    absl::StrAppend(&events, i == 2 ? "" : ",", trace[i].dump());
  }
  return events;
}

std::string NameOf(int rank) {
  return absl::StrCat("worker-", rank, ".trace.json");
}

// Both files as they come, or events of one worker or of two.
void WriteFiles(Bytes& input) {
  const int kind = input.Below(4);
  if (kind == 0) {
    WriteScratch(NameOf(0), input.Text());
    WriteScratch(NameOf(1), input.Rest());
    return;
  }
  const auto ns = static_cast<uint64_t>(input.Integer());
  const int workers = std::min(kind, 2);
  for (int rank = 0; rank < workers; ++rank) {
    const bool last = rank == workers - 1;
    WriteScratch(NameOf(rank), FileOf(rank, workers, kind != 3, ns + rank,
                                      last ? input.Rest() : input.Line()));
  }
}

}  // namespace

std::vector<std::string> Seeds() {
  const json traces[] = {TraceOf(0, 2), TraceOf(1, 2)};
  const auto of_events = [](int kind, const std::string& events) {
    return Input().Byte(kind).Integer(5000).Rest(events).bytes();
  };
  const std::string both =
      absl::StrCat(EventsOf(traces[0]), "\n", EventsOf(traces[1]));
  const std::string deep(100000, '[');
  return {
      Input().Byte(0).Text(traces[0].dump()).Rest(traces[1].dump()).bytes(),
      Input().Byte(0).Text(TraceOf(0, 1).dump()).bytes(),
      of_events(1, EventsOf(TraceOf(0, 1))),
      of_events(2, both),
      of_events(3, both),
      of_events(1, R"({"name":"a","ph":"X","args":)" + deep +
                       std::string(deep.size(), ']') + "}"),
      of_events(1, R"({"name":"a","ph":"X","args":)" + deep),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  fuzz::WriteFiles(input);
  const std::string& folder = fuzz::ScratchFolder();
  const auto steps = ReadSteps(folder);
  if (!steps.ok()) {
    fuzz::RequireReason(steps.status());
    return 0;
  }
  const TraceInfo& first = steps->processes[0];
  fuzz::Require(steps->processes.size() ==
                    static_cast<size_t>(first.workers + first.servers),
                "every process has a timeline");
  const Explanation explanation = Explain(
      steps->workers, {first.sync, first.staleness, first.backup_workers});
  fuzz::Require(explanation.workers.size() == steps->workers.size(),
                "every worker is explained");
  const std::string out = absl::StrCat(folder, "/merged.json");
  const auto merged = MergeTraces(folder, out);
  if (!merged.ok()) {
    fuzz::RequireReason(merged.status());
    return 0;
  }
  fuzz::Require(nlohmann::json::accept(fuzz::ReadScratch("merged.json")),
                "what is merged is JSON");
  return 0;
}
