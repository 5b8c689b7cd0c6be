#include "lab/bench/contender.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

std::vector<std::string> Stage::WorkerPrefix(int rank) const {
  return hosts == nullptr ? std::vector<std::string>() : hosts->PrefixOf(rank);
}

absl::Status RunToEnd(const Stage& stage,
                      const std::function<absl::Status(Supervisor&)>& start,
                      const OnLine& on_line) {
  std::optional<Supervisor> supervisor;
  SupervisorOptions options;
  options.on_line = [&](const std::string& name, absl::string_view line) {
    if (on_line) on_line(*supervisor, name, line);
  };
  supervisor.emplace(stage.cancellation, options);
  absl::Status status = start(*supervisor);
  const bool started = status.ok();
  if (started) {
    status = supervisor->RunUntil([&] { return supervisor->AllEnded(); },
                                  Now() + stage.timeout);
  }
  if (!status.ok() && !supervisor->first_failure()) supervisor->Stop();
  supervisor->Wait();
  if (!stage.cancellation.status().ok()) return stage.cancellation.status();
  if (started && absl::IsDeadlineExceeded(status)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the processes had not ended after ",
                     absl::FormatDuration(stage.timeout)));
  }
  if (supervisor->first_failure()) {
    return absl::AbortedError(ToString(*supervisor->first_failure()));
  }
  return status;
}

absl::StatusOr<Samples> ReadSamples(const std::string& directory, int ranks,
                                    int64_t iterations) {
  const size_t size = static_cast<size_t>(iterations);
  Samples samples;
  samples.seconds.assign(size, 0.0);
  samples.cpu_seconds.assign(size, 0.0);
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string path = absl::StrCat(directory, "/rank-", rank, ".json");
    std::ifstream file(path);
    const auto json = nlohmann::json::parse(file, nullptr, false);
    std::vector<double> seconds, cpu_seconds;
    try {
      seconds = json.at("seconds").get<std::vector<double>>();
      cpu_seconds = json.at("cpu_seconds").get<std::vector<double>>();
    } catch (const nlohmann::json::exception&) {
    }
    if (seconds.size() != size || cpu_seconds.size() != size) {
      return absl::DataLossError(absl::StrCat(
          "rank ", rank, " has not written ", size, " times into ", path));
    }
    for (size_t i = 0; i < size; ++i) {
      samples.seconds[i] = std::max(samples.seconds[i], seconds[i]);
      samples.cpu_seconds[i] += cpu_seconds[i];
    }
  }
  return samples;
}

}  // namespace psring
