#include "tests/testing/mnist.h"

#include <cstdlib>
#include <filesystem>

namespace psring {

std::string MnistDirectory() {
  const char* folder = std::getenv("PSRING_MNIST_DIR");
  if (folder != nullptr) return folder;
  const auto tree = std::filesystem::canonical("WORKSPACE").parent_path();
  return tree.parent_path() / "shared" / "data" / "mnist8k";
}

}  // namespace psring
