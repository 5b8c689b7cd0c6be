#include "worker/torch/torch_version.h"

#include <ATen/Version.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <link.h>
#include <torch/version.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace psring {
namespace {

std::string CudaVersion() {
  const at::CUDAHooksInterface& hooks = at::detail::getCUDAHooks();
  if (!hooks.hasCUDART()) return "none";
  const auto version = hooks.versionCUDART();
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

// Of the first object that is loaded with such a name; its folder.
int TakeFolder(dl_phdr_info* object, size_t, void* folder) {
  const std::filesystem::path path = object->dlpi_name;
  if (!absl::StartsWith(path.filename().string(), "libtorch_cpu.")) return 0;
  *static_cast<std::string*>(folder) = path.parent_path().string();
  return 1;
}

}  // namespace

std::string TorchVersion() {
  const std::string key = "TORCH_VERSION=";
  const std::string settings = at::show_config();
  const size_t at = settings.find(key);
  if (at == std::string::npos) return TORCH_VERSION;
  const size_t begin = at + key.size();
  return settings.substr(begin, settings.find_first_of(", \n", begin) - begin);
}

std::string DescribeTorch() {
  std::string folder = "unknown";
  dl_iterate_phdr(TakeFolder, &folder);
  return absl::StrCat("libtorch ", TorchVersion(), "\nlibtorch's CUDA ",
                      CudaVersion(), "\nlibtorch's folder ", folder);
}

}  // namespace psring
