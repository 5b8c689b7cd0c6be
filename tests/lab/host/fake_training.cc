#include "tests/lab/host/fake_training.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

namespace psring {
namespace {

using nlohmann::json;

constexpr int kStepsPerEpoch = 20;
constexpr int kGlobalBatch = 128;

// Appends events to one process's file.
class Writer {
 public:
  Writer(const FakeTraining& training, const std::string& role)
      : file_(training.metrics_dir + "/" + role + "-" +
              std::to_string(training.rank) + ".jsonl") {}

  void Write(const json& event) { file_ << event << std::endl; }

 private:
  std::ofstream file_;
};

json Start(const FakeTraining& training, const std::string& role) {
  return {{"event", "start"},
          {"time", 1.7e9},
          {"role", role},
          {"rank", training.rank},
          {"host", "fake"},
          {"pid", 1},
          {"mode", training.mode},
          {"sync", training.sync},
          {"num_parameters", 21840},
          {"total_steps", training.epochs * kStepsPerEpoch},
          {"steps_per_epoch", kStepsPerEpoch},
          {"global_batch", kGlobalBatch}};
}

json End(int step, double seconds, int64_t bytes_sent) {
  return {{"event", "end"},         {"step", step},
          {"seconds", seconds},     {"bytes_sent", bytes_sent},
          {"bytes_received", 1000}, {"peak_memory_bytes", 200 << 20}};
}

void WriteCheckpoint(const FakeTraining& training) {
  const std::filesystem::path dir =
      std::filesystem::path(training.checkpoint_dir) / "step-60";
  std::filesystem::create_directories(dir);
  std::ofstream(dir / "model.safetensors")
      << "weights of " << (training.mode == "ring" ? "bsp" : training.sync);
}

}  // namespace

void WriteServerMetrics(const FakeTraining& training) {
  if (training.metrics_dir.empty()) return;
  Writer writer(training, "ps");
  writer.Write(Start(training, "ps"));
  json end = End(60, 1.0, 60 * 2 * 87360);
  end["staleness_mean"] = 0.25;
  end["staleness_max"] = 2;
  // Worker 1 is the slower one.
  end["staleness_histogram"] = {{"0", {50, 8, 2}}, {"1", {30, 20, 10}}};
  writer.Write(end);
}

void WriteWorkerMetrics(const FakeTraining& training) {
  if (!training.checkpoint_dir.empty() && training.rank == 0) {
    WriteCheckpoint(training);
  }
  if (training.metrics_dir.empty()) return;
  const double step_seconds = training.mode == "ring" ? 0.01 : 0.02;
  const double worse = training.sync == "async" ? 0.05 : 0;
  Writer writer(training, "worker");
  writer.Write(Start(training, "worker"));
  const int steps = training.epochs * kStepsPerEpoch;
  for (int step = 1; step <= steps; ++step) {
    const double seconds = step * step_seconds;
    const double loss = 2.3 * std::exp(-step / 20.0) + worse;
    const double rate = kGlobalBatch / step_seconds;
    writer.Write({{"event", "step"},
                  {"step", step},
                  {"seconds", seconds},
                  {"loss", loss},
                  {"images_per_second", rate}});
    if (step % kStepsPerEpoch != 0 || training.rank != 0) continue;
    writer.Write({{"event", "epoch"},
                  {"epoch", step / kStepsPerEpoch},
                  {"step", step},
                  {"seconds", seconds},
                  {"train_loss", loss},
                  {"test_loss", loss + 0.01},
                  {"test_accuracy", 0.99 - loss / 4},
                  {"images_per_second", rate}});
  }
  if (training.fills_disk) {
    std::cout << "--metrics-dir: cannot write " << training.metrics_dir
              << "/worker-0.jsonl (No space left on device)" << std::endl;
    return;
  }
  json end = End(steps, steps * step_seconds, steps * 87360);
  end["step_seconds"] = {{"compute", step_seconds / 2},
                         {"exposed", step_seconds / 4},
                         {"wait", step_seconds / 4},
                         {"busy", {step_seconds * 0.75}}};
  writer.Write(end);
}

}  // namespace psring
