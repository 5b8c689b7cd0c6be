// common/trace/metrics_reader.h: a process's metrics, whole and while they are
// written.
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/trace/metrics_file.h"
#include "common/trace/metrics_reader.h"
#include "nlohmann/json.hpp"
#include "tests/fuzz/fuzz.h"

namespace psring::fuzz {
namespace {

using nlohmann::json;

void RequireSame(const ProcessMetrics& a, const ProcessMetrics& b) {
  Require(a.role == b.role && a.rank == b.rank &&
              a.steps.size() == b.steps.size() &&
              a.epochs.size() == b.epochs.size() &&
              a.end.has_value() == b.end.has_value() &&
              a.num_parameters == b.num_parameters,
          "who follows a file reads what is in it");
}

void Append(const std::string& path, absl::string_view bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file << bytes;
}

}  // namespace

std::vector<std::string> Seeds() {
  proto::Process process;
  process.set_role(proto::WORKER);
  process.set_host("a");
  auto file = MetricsFile::Create(
      ScratchFolder(), process,
      {{"num_parameters", 21840}, {"total_steps", 100}, {"mode", "ring"}});
  Require(file.ok(), "metrics can be written");
  file->Write({{"event", "step"},
               {"step", 1},
               {"seconds", 0.5},
               {"loss", json()},
               {"images_per_second", 100.0}});
  file->Write({{"event", "progress"},
               {"step", 1},
               {"seconds", 0.5},
               {"last_step_seconds", 0.25}});
  file->Write({{"event", "model"}, {"num_parameters", 5}, {"global_batch", 8}});
  file->Write({{"event", "epoch"},
               {"epoch", 1},
               {"step", 50},
               {"seconds", 2.5},
               {"train_loss", 1.0},
               {"test_loss", 1.1},
               {"test_accuracy", 0.8},
               {"images_per_second", 99.0}});
  const json end = {{"event", "end"},
                    {"step", 100},
                    {"seconds", 5.0},
                    {"bytes_sent", 1000},
                    {"bytes_received", 1001},
                    {"peak_memory_bytes", 5000},
                    {"staleness_histogram", {{"0", {1, 2}}, {"1", {3}}}},
                    {"step_seconds",
                     {{"compute", 0.5},
                      {"exposed", 0.2},
                      {"wait", 0.0},
                      {"busy", {0.1, 0.2}}}},
                    {"weights_crc32", 123}};
  file->Write(end);
  return {
      Input().Number(60, 2).Rest(ReadScratch("worker-0.jsonl")).bytes(),
      Input().Number(0, 2).Rest(end.dump() + "\n").bytes(),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  const size_t cut = static_cast<size_t>(input.Number(2));
  const std::string text = input.Rest();
  const std::string path = fuzz::WriteScratch("metrics.jsonl", text);
  MetricsReader whole(path);
  const absl::Status status = whole.Read();
  if (!status.ok()) fuzz::RequireReason(status);
  fuzz::WriteScratch("metrics.jsonl", text.substr(0, cut));
  MetricsReader follower(path);
  absl::Status followed = follower.Read();
  if (cut < text.size()) fuzz::Append(path, text.substr(cut));
  if (followed.ok()) followed = follower.Read();
  fuzz::Require(followed == status, "who follows a file finds its faults");
  fuzz::RequireSame(whole.metrics(), follower.metrics());
  return 0;
}
