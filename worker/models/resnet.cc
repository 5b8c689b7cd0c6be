#include "worker/models/resnet.h"

#include <array>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/models/layers.h"

namespace psring {
namespace {

struct ConvSpec {
  int64_t out, kernel, stride;
};

// A convolution with batch norm. Padded so that stride 1 keeps the size; no
// bias, batch norm brings one.
struct NormedConv {
  NormedConv(int64_t in, const ConvSpec& spec)
      : conv({.in = in,
              .out = spec.out,
              .kernel = spec.kernel,
              .stride = spec.stride,
              .padding = spec.kernel / 2,
              .bias = false}),
        norm(spec.out) {}

  at::Tensor operator()(const at::Tensor& x, bool training) const {
    return norm(conv(x), training);
  }

  Conv2d conv;
  BatchNorm2d norm;
};

// Convolutions with batch norm and ReLU, around which the input is led: as it
// is, or through a 1x1 convolution where the shape changes. Both of
// torchvision's kinds, BasicBlock and Bottleneck.
class ResidualBlock : public Module {
 public:
  ResidualBlock(int64_t in, const std::vector<ConvSpec>& specs) {
    const int64_t out = specs.back().out;
    int64_t stride = 1;
    for (const ConvSpec& spec : specs) stride *= spec.stride;
    // Before the others, as torchvision draws its weights; registered after.
    if (stride != 1 || in != out) {
      downsample_.emplace(in, ConvSpec{out, 1, stride});
    }
    for (const ConvSpec& spec : specs) {
      const NormedConv& made = convs_.emplace_back(in, spec);
      AddModule(absl::StrCat("conv", convs_.size()), made.conv);
      AddModule(absl::StrCat("bn", convs_.size()), made.norm);
      in = spec.out;
    }
    if (!downsample_.has_value()) return;
    AddModule("downsample.0", downsample_->conv);
    AddModule("downsample.1", downsample_->norm);
  }

  at::Tensor Forward(at::Tensor x, bool training) const {
    const at::Tensor around =
        downsample_.has_value() ? (*downsample_)(x, training) : x;
    for (size_t i = 0; i < convs_.size(); ++i) {
      if (i > 0) x.relu_();
      x = convs_[i](x, training);
    }
    return x.add_(around).relu_();
  }

  void SynchroniseBatchNorm(GatherStatistics& gather) {
    for (NormedConv& normed : convs_) normed.norm.Synchronise(gather);
    if (downsample_.has_value()) downsample_->norm.Synchronise(gather);
  }

  // In the order of registration.
  void DrawConvWeights() {
    for (NormedConv& normed : convs_) normed.conv.DrawForFanOut();
    if (downsample_.has_value()) downsample_->conv.DrawForFanOut();
  }

 private:
  std::vector<NormedConv> convs_;
  std::optional<NormedConv> downsample_;
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

// Of a side of the image, after five halvings that round up.
int64_t Reduced(int64_t pixels) { return (pixels + 31) / 32; }

class ResNet : public Classifier {
 public:
  ResNet(ResNetDepth depth, const ImageShape& shape)
      : stem_(shape.channels, {64, 7, 2}),
        last_positions_(Reduced(shape.height) * Reduced(shape.width)) {
    AddModule("conv1", stem_.conv);
    AddModule("bn1", stem_.norm);
    int64_t in = 64;
    for (int layer = 0; layer < 4; ++layer) {
      for (int block = 0; block < BlocksPerLayer(depth)[layer]; ++block) {
        const int64_t stride = layer > 0 && block == 0 ? 2 : 1;
        const auto convs = BlockConvs(depth, int64_t{64} << layer, stride);
        AddModule(absl::StrCat("layer", layer + 1, ".", block),
                  blocks_.emplace_back(in, convs));
        in = convs.back().out;
      }
    }
    AddModule("fc", fc_.emplace(in, shape.num_classes));
    stem_.conv.DrawForFanOut();
    for (ResidualBlock& block : blocks_) block.DrawConvWeights();
  }

  at::Tensor Forward(at::Tensor x) override {
    x = stem_(x, training()).relu_();
    x = MaxPool2d(x, {.kernel = 3, .stride = 2, .padding = 1});
    for (const ResidualBlock& block : blocks_) x = block.Forward(x, training());
    return LogProbabilities((*fc_)(GlobalMeanPool2d(x)));
  }

  int64_t FewestNormalised() const override { return last_positions_; }

  void SynchroniseBatchNorm(GatherStatistics& gather) override {
    stem_.norm.Synchronise(gather);
    for (ResidualBlock& block : blocks_) block.SynchroniseBatchNorm(gather);
  }

 private:
  NormedConv stem_;
  const int64_t last_positions_;
  std::vector<ResidualBlock> blocks_;
  std::optional<Linear> fc_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Classifier>> CreateResNet(
    ResNetDepth depth, const ImageShape& shape) {
  return std::make_unique<ResNet>(depth, shape);
}

}  // namespace psring
