// libcuda.so.1 of a host whose driver does not work: what loads it finds a
// driver, and cuInit fails, as after an update of the driver without a reboot.
#include <cstdlib>
#include <cstring>

extern "C" {

// 13.0, or what FAKE_CUDA_VERSION says.
int cuDriverGetVersion(int* version) {
  const char* const wanted = std::getenv("FAKE_CUDA_VERSION");
  *version = wanted != nullptr ? std::atoi(wanted) : 13000;
  return 0;
}

int cuInit(unsigned) { return 803; }  // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH

// By which CUDA's runtime finds all others.
int cuGetProcAddress_v2(const char* name, void** function, int,
                        unsigned long long, void* status) {
  *function = nullptr;
  if (std::strcmp(name, "cuDriverGetVersion") == 0) {
    *function = reinterpret_cast<void*>(cuDriverGetVersion);
  } else if (std::strcmp(name, "cuInit") == 0) {
    *function = reinterpret_cast<void*>(cuInit);
  } else if (std::strcmp(name, "cuGetProcAddress") == 0) {
    *function = reinterpret_cast<void*>(cuGetProcAddress_v2);
  }
  if (status != nullptr) {
    *static_cast<int*>(status) = *function != nullptr ? 0 : 1;  // not found
  }
  return 0;
}

}  // extern "C"
