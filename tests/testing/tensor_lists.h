// The parameters of the models that the tests cut into buckets and shards.
#ifndef PSRING_TESTS_TESTING_TENSOR_LISTS_H_
#define PSRING_TESTS_TESTING_TENSOR_LISTS_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "protos/cluster.pb.h"

namespace psring::testing {

using TensorList = std::vector<proto::TensorShape>;

proto::TensorShape Tensor(const std::string& name,
                          const std::vector<int64_t>& shape);

TensorList Lenet();
// Fully connected layers, each with a bias.
TensorList Mlp(const std::vector<int64_t>& widths);
// torchvision's, 1000 classes.
TensorList Resnet18();
// Up to 12 tensors of up to 3 dimensions, scalars and empty ones among them.
TensorList RandomTensors(std::mt19937& random);

}  // namespace psring::testing

#endif  // PSRING_TESTS_TESTING_TENSOR_LISTS_H_
