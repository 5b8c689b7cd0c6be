#include "lab/host/gpu_info.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

// A library that stays loaded until the process ends.
class Library {
 public:
  explicit Library(const char* name)
      : handle_(dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {}

  // Calls the function of this name; false where there is none, or where it
  // returns an error (anything but 0, by CUDA's and NCCL's convention).
  template <typename... Args>
  bool Call(const char* name, Args... args) const {
    if (handle_ == nullptr) return false;
    auto* function = reinterpret_cast<int (*)(Args...)>(dlsym(handle_, name));
    return function != nullptr && function(args...) == 0;
  }

 private:
  void* const handle_;
};

}  // namespace

std::optional<CudaInfo> FindCuda() {
  const Library cuda("libcuda.so.1");
  int version = 0;
  if (!cuda.Call("cuDriverGetVersion", &version)) return std::nullopt;
  CudaInfo info;
  info.driver_version = absl::StrCat(version / 1000, ".", version % 1000 / 10);
  if (!cuda.Call("cuInit", 0u) ||
      !cuda.Call("cuDeviceGetCount", &info.num_devices)) {
    info.num_devices = 0;
  }
  return info;
}

std::optional<std::string> FindNccl() {
  const Library nccl("libnccl.so.2");
  int version = 0;
  if (!nccl.Call("ncclGetVersion", &version)) return std::nullopt;
  return absl::StrCat(version / 10000, ".", version % 10000 / 100, ".",
                      version % 100);
}

std::string CommonDevice(int most_workers, int num_gpus) {
  return num_gpus > 0 && most_workers > num_gpus ? "cpu" : "auto";
}

}  // namespace psring
