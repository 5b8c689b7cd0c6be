// What psring compare and psring bench have written, read back: a run of a
// study (lab/study/run_result.h), and where a prediction starts
// (lab/predict/predict_source.h).
#include <cmath>
#include <utility>

#include "lab/predict/predict_source.h"
#include "lab/study/run_result.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

using nlohmann::json;

RunResult SomeRun() {
  RunResult run;
  for (const Axis& axis : Axes()) {
    run.point.push_back(axis.initial == nullptr ? "ring" : axis.initial);
  }
  run.num_parameters = 21840;
  run.num_steps = 100;
  run.seconds = 5;
  run.images_per_second = 2000;
  run.test_accuracy = 0.97;
  run.test_loss = std::nan("");
  run.staleness_histogram = {{0, {1, 2}}};
  run.step_times = {{0, {0.5, 0.1, 0.0, {0.5, 0.6}}}};
  run.predicted_step_s = 0.05;
  run.weights_crc32 = 0xdeadbeef;
  run.steps = {{10, 0.5, 2.3, 100}, {20, 1.0, 2.2, 100}};
  run.epochs = {{1, 100, 5, 1, 1, 0.97, 2000}};
  return run;
}

json SomeReport() {
  json with_faults = ToJson(SomeRun());
  with_faults["point"]["slow"] = "worker:1:x3";
  return {{"schema", "psring-report-2"},
          {"setup", {{"flags", {{"--model", "lenet"}}}}},
          {"runs", {ToJson(SomeRun()), with_faults}}};
}

void ReadRun(const std::string& text) {
  const json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto run = RunFromJson(value);
  if (!run.ok()) return RequireReason(run.status());
  Require(run->point.size() == Axes().size(), "a run has a place in its study");
  const json written = ToJson(*run);
  const auto again = RunFromJson(written);
  Require(again.ok() && ToJson(*again) == written,
          "what was read can be written and read again");
}

void ReadFile(const std::string& text) {
  const auto source = ReadSource(WriteScratch("report.json", text));
  if (!source.ok()) return RequireReason(source.status());
  Require(source->link_bits_per_s.has_value() || !source->compute_s.empty(),
          "a prediction has something to start from");
  Require(source->parameters >= 0, "a model has parameters");
}

}  // namespace

std::vector<std::string> Seeds() {
  const json bench = {
      {"links", {{{"median_bits_per_s", 1e9}}, {{"median_bits_per_s", 9e8}}}}};
  const std::string deep =
      "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  return {
      Input().Byte(0).Rest(ToJson(SomeRun()).dump()).bytes(),
      Input().Byte(1).Rest(SomeReport().dump()).bytes(),
      Input().Byte(1).Rest(bench.dump()).bytes(),
      Input().Byte(1).Rest(R"({"runs":[{"point":)" + deep + "}]}").bytes(),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  psring::fuzz::Bytes input(data, size);
  if (input.Flag()) {
    psring::fuzz::ReadFile(input.Rest());
  } else {
    psring::fuzz::ReadRun(input.Rest());
  }
  return 0;
}
