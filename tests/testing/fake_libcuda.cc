// libcuda.so.1 of a host whose driver does not work: what loads it finds a
// driver, and cuInit fails, as after an update of the driver without a reboot.
#include <cstdlib>

extern "C" {

// 13.0, or what FAKE_CUDA_VERSION says.
int cuDriverGetVersion(int* version) {
  const char* const wanted = std::getenv("FAKE_CUDA_VERSION");
  *version = wanted != nullptr ? std::atoi(wanted) : 13000;
  return 0;
}

int cuInit(unsigned) { return 803; }  // CUDA_ERROR_SYSTEM_DRIVER_MISMATCH

int cuGetProcAddress_v2(const char*, void** function, int, unsigned long long,
                        void* status) {
  *function = nullptr;
  if (status != nullptr) *static_cast<int*>(status) = 1;  // not found
  return 0;
}

}  // extern "C"
