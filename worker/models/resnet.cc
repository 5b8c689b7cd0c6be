#include "worker/models/resnet.h"

#include <torch/nn/init.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

using torch::nn::BatchNorm2d;
using torch::nn::Conv2d;

// Padded so that stride 1 keeps the size; no bias, batch norm brings one.
Conv2d MakeConv(int64_t in, int64_t out, int64_t kernel, int64_t stride) {
  return Conv2d(torch::nn::Conv2dOptions(in, out, kernel)
                    .stride(stride)
                    .padding(kernel / 2)
                    .bias(false));
}

struct ConvSpec {
  int64_t out, kernel, stride;
};

// Convolutions with batch norm and ReLU, around which the input is led: as it
// is, or through a 1x1 convolution where the shape changes. Both of
// torchvision's kinds, BasicBlock and Bottleneck.
class ResidualBlock : public torch::nn::Module {
 public:
  ResidualBlock(int64_t in, const std::vector<ConvSpec>& specs) {
    const int64_t out = specs.back().out;
    int64_t stride = 1;
    for (const ConvSpec& spec : specs) stride *= spec.stride;
    // Before the others, as torchvision draws its weights; registered after.
    if (stride != 1 || in != out) {
      downsample_->push_back(MakeConv(in, out, 1, stride));
      downsample_->push_back(BatchNorm2d(out));
    }
    for (const ConvSpec& spec : specs) {
      const size_t number = convs_.size() + 1;
      convs_.push_back(
          register_module(absl::StrCat("conv", number),
                          MakeConv(in, spec.out, spec.kernel, spec.stride)));
      norms_.push_back(
          register_module(absl::StrCat("bn", number), BatchNorm2d(spec.out)));
      in = spec.out;
    }
    if (!downsample_->is_empty()) register_module("downsample", downsample_);
  }

  torch::Tensor forward(torch::Tensor x) {
    const torch::Tensor around =
        downsample_->is_empty() ? x : downsample_->forward(x);
    for (size_t i = 0; i < convs_.size(); ++i) {
      if (i > 0) x.relu_();
      x = norms_[i](convs_[i](x));
    }
    return x.add_(around).relu_();
  }

 private:
  std::vector<Conv2d> convs_;
  std::vector<BatchNorm2d> norms_;
  torch::nn::Sequential downsample_;
};

std::vector<ConvSpec> BlockConvs(ResNetDepth depth, int64_t width,
                                 int64_t stride) {
  if (depth == ResNetDepth::k18) return {{width, 3, stride}, {width, 3, 1}};
  return {{width, 1, 1}, {width, 3, stride}, {4 * width, 1, 1}};
}

std::array<int, 4> BlocksPerLayer(ResNetDepth depth) {
  if (depth == ResNetDepth::k18) return {2, 2, 2, 2};
  return {3, 4, 6, 3};
}

class ResNet : public Classifier {
 public:
  ResNet(ResNetDepth depth, const ImageShape& shape)
      : conv1_(register_module("conv1", MakeConv(shape.channels, 64, 7, 2))),
        bn1_(register_module("bn1", BatchNorm2d(64))) {
    int64_t in = 64;
    for (int layer = 0; layer < 4; ++layer) {
      for (int block = 0; block < BlocksPerLayer(depth)[layer]; ++block) {
        const int64_t stride = layer > 0 && block == 0 ? 2 : 1;
        const auto convs = BlockConvs(depth, int64_t{64} << layer, stride);
        layers_[layer]->push_back(std::make_shared<ResidualBlock>(in, convs));
        in = convs.back().out;
      }
      register_module(absl::StrCat("layer", layer + 1), layers_[layer]);
    }
    fc_ = register_module("fc", torch::nn::Linear(in, shape.num_classes));
    DrawConvWeights();
  }

  torch::Tensor forward(torch::Tensor x) override {
    x = bn1_(conv1_(x)).relu_();
    x = torch::max_pool2d(x, 3, 2, 1);
    for (torch::nn::Sequential& layer : layers_) x = layer->forward(x);
    x = torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
    return torch::log_softmax(fc_(x), 1);
  }

 private:
  // He et al. 2015, "Delving Deep into Rectifiers", preserving the variance of
  // the gradients.
  void DrawConvWeights() {
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* conv = module->as<Conv2d>()) {
        torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut,
                                         torch::kReLU);
      }
    }
  }

  Conv2d conv1_;
  BatchNorm2d bn1_;
  std::array<torch::nn::Sequential, 4> layers_;
  torch::nn::Linear fc_{nullptr};
};

}  // namespace

absl::StatusOr<std::shared_ptr<Classifier>> CreateResNet(
    ResNetDepth depth, const ImageShape& shape) {
  return std::make_shared<ResNet>(depth, shape);
}

}  // namespace psring
