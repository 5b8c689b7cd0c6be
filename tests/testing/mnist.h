// Real MNIST or a part of it, where there is one.
#ifndef PSRING_TESTS_TESTING_MNIST_H_
#define PSRING_TESTS_TESTING_MNIST_H_

#include <string>

namespace psring {

// $PSRING_MNIST_DIR, else the folder shared/data/mnist8k beside the source
// tree; it may not exist. The test has //:WORKSPACE in its data, which says
// where the source tree lies.
std::string MnistDirectory();

}  // namespace psring

#endif  // PSRING_TESTS_TESTING_MNIST_H_
