#include "worker/loader_choice.h"

#include <algorithm>
#include <cstdint>

namespace psring {
namespace {

// Of pixels that lie on a GPU for the whole run: little beside its memory.
constexpr int64_t kResidentBytes = int64_t{1} << 28;  // or
constexpr int64_t kResidentShare = 64;                // a part of it

constexpr int kGpuLoaderThreads = 2;
constexpr int kMostLoaderThreads = 64;

}  // namespace

LoaderOptions ChooseLoader(LoaderOptions given, const Dataset& train, int cores,
                           WorkerGpu* gpu) {
  LoaderOptions loader = given;
  const bool decodes = train.source != nullptr;
  if (gpu == nullptr) {
    // While this worker waits for others; else its cores compute.
    if (loader.threads == 0 && decodes) loader.threads = 1;
    return loader;
  }
  loader.device = gpu->memory().device;
  loader.normalise_on_device = true;
  if (loader.threads > 0) return loader;
  const int64_t most = std::max(
      kResidentBytes, gpu->device().info().memory_bytes / kResidentShare);
  loader.resident =
      !decodes && static_cast<int64_t>(train.pixels.size()) <= most;
  loader.threads =
      decodes ? std::min(cores, kMostLoaderThreads) : kGpuLoaderThreads;
  return loader;
}

}  // namespace psring
