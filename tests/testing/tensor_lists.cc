#include "tests/testing/tensor_lists.h"

#include "absl/strings/str_cat.h"

namespace psring::testing {
namespace {

void AddConvolution(const std::string& name, int64_t in, int64_t out,
                    int64_t kernel, TensorList& list) {
  list.push_back(Tensor(name + ".conv.weight", {out, in, kernel, kernel}));
  list.push_back(Tensor(name + ".norm.weight", {out}));
  list.push_back(Tensor(name + ".norm.bias", {out}));
}

}  // namespace

proto::TensorShape Tensor(const std::string& name,
                          const std::vector<int64_t>& shape) {
  proto::TensorShape tensor;
  tensor.set_name(name);
  for (const int64_t dimension : shape) tensor.add_shape(dimension);
  return tensor;
}

TensorList Lenet() {
  return {Tensor("conv1.weight", {10, 1, 5, 5}),  Tensor("conv1.bias", {10}),
          Tensor("conv2.weight", {20, 10, 5, 5}), Tensor("conv2.bias", {20}),
          Tensor("fc1.weight", {50, 320}),        Tensor("fc1.bias", {50}),
          Tensor("fc2.weight", {10, 50}),         Tensor("fc2.bias", {10})};
}

TensorList Mlp(const std::vector<int64_t>& widths) {
  TensorList list;
  for (size_t i = 1; i < widths.size(); ++i) {
    list.push_back(
        Tensor(absl::StrCat("fc", i, ".weight"), {widths[i], widths[i - 1]}));
    list.push_back(Tensor(absl::StrCat("fc", i, ".bias"), {widths[i]}));
  }
  return list;
}

TensorList Resnet18() {
  TensorList list;
  AddConvolution("stem", 3, 64, 7, list);
  int64_t in = 64;
  for (const int64_t out : {64, 128, 256, 512}) {
    for (int block = 0; block < 2; ++block) {
      const std::string name = absl::StrCat("layer", out, ".", block);
      AddConvolution(name + ".1", in, out, 3, list);
      AddConvolution(name + ".2", out, out, 3, list);
      if (in != out) AddConvolution(name + ".down", in, out, 1, list);
      in = out;
    }
  }
  list.push_back(Tensor("fc.weight", {1000, 512}));
  list.push_back(Tensor("fc.bias", {1000}));
  return list;
}

TensorList RandomTensors(std::mt19937& random) {
  TensorList list;
  const int count = 1 + random() % 12;
  for (int i = 0; i < count; ++i) {
    std::vector<int64_t> shape(random() % 4);
    for (int64_t& dimension : shape) dimension = random() % 20;
    list.push_back(Tensor(absl::StrCat("t", i), shape));
  }
  return list;
}

}  // namespace psring::testing
