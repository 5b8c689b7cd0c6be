#include "common/trace/step_reader.h"

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/trace/whole_number.h"

namespace psring {
namespace {

using nlohmann::json;

// Three years: the sum stays an int64_t, whatever the file says.
constexpr int64_t kMostEncode = 100'000'000'000'000'000;

struct ProcessSteps {
  WorkerSteps seen;    // by the processor
  WorkerSteps of_gpu;  // where a GPU computes, what it did itself
};

// A span of a worker that says where a step's time went.
void TakeSpan(const json& event, ProcessSteps& steps) {
  const json& args = event.at("args");
  if (event.at("ph") != "X" || !args.contains("step")) return;
  absl::string_view name = event.at("name").get_ref<const std::string&>();
  const int64_t number = WholeOf(args["step"]);
  if (number < 0) return;
  const bool of_gpu = absl::ConsumePrefix(&name, "gpu ");
  WorkerStep& step = (of_gpu ? steps.of_gpu : steps.seen)[number];
  const int64_t ns = std::max<int64_t>(
      static_cast<int64_t>(event.at("dur").get<double>() * 1000), 1);
  if (name == "step") step.whole = ns;
  if (name == "data") step.data = ns;
  if (name == "forward") step.forward = ns;
  if (name == "encode") step.encode = std::min(step.encode + ns, kMostEncode);
  // Buckets that were encoded before it ended were encoded in it.
  if (name == "backward") step.backward = ns - step.encode;
  if (name == "slow") step.slow = ns;
  if (name == "catch up") step.catch_up = ns;
  if (name == "wait") {
    // By its own clock until that is known.
    step.arrived = static_cast<int64_t>(event.at("ts").get<double>() * 1000);
    step.went_on = step.arrived + ns;
  }
  if (name == "await" && args.contains("peer")) {
    absl::string_view peer = args["peer"].get_ref<const std::string&>();
    if (absl::ConsumePrefix(&peer, "ps ")) {
      int rank = -1;
      if (absl::SimpleAtoi(peer, &rank)) step.last_server = rank;
    }
  }
}

// The processor only describes what a GPU does, steps ahead of it. Of what it
// saw, the injected fault, the last server and the wait before an evaluation
// count; what it encodes lies in what the GPU waits for.
WorkerSteps StepsOf(ProcessSteps process) {
  if (process.of_gpu.empty()) return std::move(process.seen);
  for (auto& [number, step] : process.of_gpu) {
    const auto seen = process.seen.find(number);
    if (seen == process.seen.end()) continue;
    step.slow = seen->second.slow;
    step.last_server = seen->second.last_server;
    step.catch_up = seen->second.catch_up;
    if (step.whole > 0) step.whole += step.slow;
  }
  return std::move(process.of_gpu);
}

}  // namespace

absl::StatusOr<JobSteps> ReadSteps(const std::string& directory) {
  std::vector<ProcessSteps> by_process;
  auto infos = ReadTraces(directory, [&](size_t process, const json& event) {
    by_process.resize(std::max(by_process.size(), process + 1));
    if (event.contains("args")) TakeSpan(event, by_process[process]);
  });
  if (!infos.ok()) return infos.status();
  JobSteps job;
  for (size_t i = 0; i < infos->size(); ++i) {
    if ((*infos)[i].role != "worker") continue;
    WorkerSteps steps = StepsOf(std::move(by_process[i]));
    for (auto& [number, step] : steps) {
      if (step.went_on == 0) continue;
      // Where the process was stopped meanwhile, its clock stood still.
      const int64_t took = step.went_on - step.arrived;
      step.arrived =
          (*infos)[i].CommonNs(static_cast<double>(step.arrived) / 1000);
      step.went_on = step.arrived + took;
    }
    job.workers.push_back(std::move(steps));
  }
  job.processes = *std::move(infos);
  return job;
}

}  // namespace psring
