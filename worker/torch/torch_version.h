// Which libtorch this process runs with, which need not be the one that it was
// built with.
#ifndef PSRING_WORKER_TORCH_TORCH_VERSION_H_
#define PSRING_WORKER_TORCH_TORCH_VERSION_H_

#include <string>

namespace psring {

// "2.13.0".
std::string TorchVersion();

// What --version says of it, a line each: "libtorch 2.13.0", "libtorch's CUDA
// 13.0" (or "none"), and "libtorch's folder /usr/lib", where its libraries lie.
std::string DescribeTorch();

}  // namespace psring

#endif  // PSRING_WORKER_TORCH_TORCH_VERSION_H_
