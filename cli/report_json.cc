#include "cli/report_json.h"

#include "absl/strings/str_format.h"
#include "cli/report_parts.h"
#include "cli/summary.h"

namespace psring {
namespace {

using nlohmann::json;

json SetupJson(const ReportSetup& setup) {
  return {
      {"command", setup.command},
      {"model", setup.model},
      {"data", setup.data},
      {"workers", setup.workers},
      {"servers", setup.servers},
      {"epochs", setup.epochs},
      {"batch_size", setup.batch_size},
      {"optimizer", setup.optimizer},
      {"lr", setup.lr},
      {"momentum", setup.momentum},
      {"seed", setup.seed},
      {"threads_per_worker", setup.threads_per_worker},
      {"created", setup.created},
      {"commit", setup.commit},
      {"libtorch", setup.libtorch},
      {"zeromq", setup.zeromq},
  };
}

json StepsJson(const ModeResult& mode) {
  json steps = json::array();
  for (const StepSample& sample : mode.steps) {
    steps.push_back({{"step", sample.step},
                     {"seconds", sample.seconds},
                     {"loss", sample.loss}});
  }
  return steps;
}

json EpochsJson(const ModeResult& mode) {
  json epochs = json::array();
  for (const EpochSample& sample : mode.epochs) {
    epochs.push_back({{"epoch", sample.epoch},
                      {"step", sample.step},
                      {"seconds", sample.seconds},
                      {"train_loss", sample.train_loss},
                      {"test_loss", sample.test_loss},
                      {"test_accuracy", sample.test_accuracy},
                      {"images_per_second", sample.images_per_second}});
  }
  return epochs;
}

json ModeJson(const ModeResult& mode, double target) {
  const auto seconds = SecondsToAccuracy(mode, target);
  return {
      {"name", mode.spec.name},
      {"num_parameters", mode.num_parameters},
      {"num_steps", mode.num_steps},
      {"seconds", mode.seconds},
      {"images_per_second", mode.images_per_second},
      {"seconds_to_target_accuracy", seconds ? json(*seconds) : json()},
      {"test_accuracy", mode.test_accuracy},
      {"test_loss", mode.test_loss},
      {"worker_bytes_sent_per_step", mode.worker_bytes_per_step},
      {"server_bytes_sent_per_step", mode.server_bytes_per_step},
      {"worker_peak_bytes", mode.worker_peak_bytes},
      {"server_peak_bytes", mode.server_peak_bytes},
      {"staleness_mean", mode.staleness_mean},
      {"staleness_max", mode.staleness_max},
      {"weights_crc32", absl::StrFormat("%08x", mode.weights_crc32)},
      {"steps", StepsJson(mode)},
      {"epochs", EpochsJson(mode)},
  };
}

}  // namespace

json ToJson(const ReportSetup& setup, const Comparison& comparison) {
  json modes = json::array();
  for (const ModeResult& mode : comparison.modes) {
    modes.push_back(ModeJson(mode, comparison.target_accuracy));
  }
  const auto& identical = comparison.identical_weights;
  return {
      {"setup", SetupJson(setup)},
      {"machine", MachineJson(setup.machine)},
      {"target_accuracy", comparison.target_accuracy},
      {"identical_weights", identical ? json(*identical) : json()},
      {"verdicts", Verdicts(comparison)},
      {"modes", std::move(modes)},
  };
}

}  // namespace psring
