#include "worker/torch/gpu_choice.h"

#include <map>
#include <set>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/log.h"

namespace psring {
namespace {

constexpr char kRemedy[] =
    "Start fewer workers, compute on the CPU with --device=cpu, or let them "
    "share with --allow-shared-gpu (slow: for trying things out)";

}  // namespace

absl::StatusOr<DeviceWish> ParseDevice(absl::string_view text) {
  using Kind = DeviceWish::Kind;
  if (text == "auto") return DeviceWish{Kind::kAuto};
  if (text == "cpu") return DeviceWish{Kind::kCpu};
  if (text == "cuda") return DeviceWish{Kind::kCuda};
  DeviceWish wish = {Kind::kCuda};
  absl::string_view index = text;
  if (absl::ConsumePrefix(&index, "cuda:") &&
      absl::SimpleAtoi(index, &wish.index) && wish.index >= 0) {
    return wish;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "--device: \"", text, "\" is none of auto, cpu, cuda, cuda:INDEX"));
}

absl::StatusOr<bool> DecideOnGpu(const DeviceWish& wish,
                                 const absl::Status& gpus, bool has_driver) {
  if (wish.kind == DeviceWish::Kind::kCpu) return false;
  if (gpus.ok()) return true;
  if (wish.kind == DeviceWish::Kind::kAuto) {
    if (absl::IsFailedPrecondition(gpus) ||
        (absl::IsUnimplemented(gpus) && has_driver)) {
      LogWarning(
          "trains on the CPU although this host has a GPU: $0. --device=cpu "
          "says that this is meant",
          std::string(gpus.message()));
    }
    return false;
  }
  return absl::Status(
      gpus.code(), absl::StrCat("--device=cuda: ", std::string(gpus.message()),
                                "; --device=cpu computes without one"));
}

absl::StatusOr<int> ChooseGpu(const DeviceWish& wish, const LocalPlace& place,
                              int num_gpus) {
  if (wish.index >= num_gpus) {
    return absl::InvalidArgumentError(absl::StrCat("--device=cuda:", wish.index,
                                                   ": this host has ", num_gpus,
                                                   " GPUs, numbered from 0"));
  }
  return wish.index >= 0 ? wish.index : place.index % num_gpus;
}

std::string GpuText(absl::string_view host, absl::string_view bus_id,
                    absl::string_view uuid) {
  return absl::StrCat("host ", host, ", ", bus_id, " (", uuid, ")");
}

bool ShareAGpu(const std::vector<std::string>& gpus,
               const proto::Welcome& job) {
  std::set<std::pair<HostId, std::string>> whole;
  for (size_t r = 0; r < gpus.size(); ++r) {
    const std::string without_uuid = gpus[r].substr(0, gpus[r].rfind(" ("));
    const HostId host = HostOf(job.workers(static_cast<int>(r)));
    if (!whole.insert({host, without_uuid}).second) return true;
  }
  return false;
}

absl::Status CheckNotShared(const std::vector<std::string>& gpus,
                            bool may_share) {
  std::map<std::string, size_t> owners;
  for (size_t rank = 0; rank < gpus.size() && !may_share; ++rank) {
    const auto [owner, fresh] = owners.insert({gpus[rank], rank});
    if (fresh) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("workers ", owner->second, " and ", rank,
                     " have the same GPU, ", gpus[rank], ". ", kRemedy));
  }
  return absl::OkStatus();
}

}  // namespace psring
