// common/trace/: timelines of two workers, which are read, merged and
// explained.
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

std::string NameOf(int rank) {
  return absl::StrCat("worker-", rank, ".trace.json");
}

}  // namespace

std::vector<std::string> Seeds() {
  return {
      Input().Text(TraceOf(0, 2).dump()).Rest(TraceOf(1, 2).dump()).bytes(),
      Input().Text(TraceOf(0, 1).dump()).bytes(),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  fuzz::WriteScratch(fuzz::NameOf(0), input.Text());
  fuzz::WriteScratch(fuzz::NameOf(1), input.Rest());
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
