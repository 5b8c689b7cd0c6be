#include "worker/models/lenet.h"

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

constexpr int64_t kKernel = 5, kPool = 2;
constexpr int64_t kFilters1 = 10, kFilters2 = 20, kHidden = 50;

// What one convolution and pooling leave of a side.
int64_t SideAfter(int64_t side) { return (side - kKernel + 1) / kPool; }

torch::nn::Conv2d MakeConv(int64_t in, int64_t out) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kKernel));
}

torch::Tensor PoolRelu(const torch::Tensor& x) {
  return torch::relu(torch::max_pool2d(x, kPool));
}

class LeNet : public Classifier {
 public:
  LeNet(const ImageShape& shape, int64_t features)
      : conv1_(register_module("conv1", MakeConv(shape.channels, kFilters1))),
        conv2_(register_module("conv2", MakeConv(kFilters1, kFilters2))),
        fc1_(register_module("fc1", torch::nn::Linear(features, kHidden))),
        fc2_(register_module("fc2",
                             torch::nn::Linear(kHidden, shape.num_classes))) {}

  torch::Tensor forward(torch::Tensor x) override {
    x = PoolRelu(conv1_(x));
    x = PoolRelu(torch::feature_dropout(conv2_(x), 0.5, is_training()));
    x = torch::relu(fc1_(x.flatten(1)));
    x = torch::dropout(x, 0.5, is_training());
    return torch::log_softmax(fc2_(x), 1);
  }

 private:
  torch::nn::Conv2d conv1_, conv2_;
  torch::nn::Linear fc1_, fc2_;
};

}  // namespace

absl::StatusOr<std::shared_ptr<Classifier>> CreateLeNet(
    const ImageShape& shape) {
  const int64_t height = SideAfter(SideAfter(shape.height));
  const int64_t width = SideAfter(SideAfter(shape.width));
  if (height < 1 || width < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("needs images of at least 16x16 pixels, these are ",
                     shape.channels, "x", shape.height, "x", shape.width));
  }
  return std::make_shared<LeNet>(shape, kFilters2 * height * width);
}

}  // namespace psring
