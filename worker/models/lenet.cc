#include "worker/models/lenet.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "worker/models/layers.h"

namespace psring {
namespace {

constexpr int64_t kKernel = 5, kPool = 2;
constexpr int64_t kFilters1 = 10, kFilters2 = 20, kHidden = 50;

// What one convolution and pooling leave of a side.
int64_t SideAfter(int64_t side) { return (side - kKernel + 1) / kPool; }

Conv2dOptions ConvOf(int64_t in, int64_t out) {
  return {.in = in, .out = out, .kernel = kKernel};
}

at::Tensor PoolRelu(const at::Tensor& x) {
  return MaxPool2d(x, {.kernel = kPool, .stride = kPool}).relu();
}

class LeNet : public Classifier {
 public:
  LeNet(const ImageShape& shape, int64_t features, double dropout)
      : dropout_(dropout),
        conv1_(ConvOf(shape.channels, kFilters1)),
        conv2_(ConvOf(kFilters1, kFilters2)),
        fc1_(features, kHidden),
        fc2_(kHidden, shape.num_classes) {
    AddModule("conv1", conv1_);
    AddModule("conv2", conv2_);
    AddModule("fc1", fc1_);
    AddModule("fc2", fc2_);
  }

  at::Tensor Forward(at::Tensor x) override {
    x = PoolRelu(conv1_(x));
    x = PoolRelu(FeatureDropout(conv2_(x), dropout_, training()));
    x = fc1_(x.flatten(1)).relu();
    x = Dropout(x, dropout_, training());
    return LogProbabilities(fc2_(x));
  }

 private:
  const double dropout_;
  const Conv2d conv1_, conv2_;
  const Linear fc1_, fc2_;
};

absl::StatusOr<double> ParseDropout(absl::string_view options) {
  double dropout = 0.5;
  if (absl::ConsumePrefix(&options, "dropout=") &&
      (!absl::SimpleAtod(options, &dropout) ||
       !(dropout >= 0 && dropout < 1))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "dropout is '", options, "', expected 0 to 1, and less than 1"));
  }
  return dropout;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Classifier>> CreateLeNet(
    absl::string_view options, const ImageShape& shape) {
  const auto dropout = ParseDropout(options);
  if (!dropout.ok()) return dropout.status();
  const int64_t height = SideAfter(SideAfter(shape.height));
  const int64_t width = SideAfter(SideAfter(shape.width));
  if (height < 1 || width < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("needs images of at least 16x16 pixels, these are ",
                     shape.channels, "x", shape.height, "x", shape.width));
  }
  return std::make_unique<LeNet>(shape, kFilters2 * height * width, *dropout);
}

}  // namespace psring
