#include "worker/models/layers.h"

#include <ATen/ops/adaptive_avg_pool2d.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/feature_dropout.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "worker/models/sync_batch_norm.h"

namespace psring {
namespace {

constexpr double kNormMomentum = 0.1;
constexpr double kNormEpsilon = 1e-5;

// reset_parameters() of torch.nn.Linear and Conv2d: kaiming_uniform_ with a =
// sqrt(5) for the weights, and the same bound, as a formula, for the bias.
void DrawUniform(const at::Tensor& weight, const at::Tensor& bias) {
  c10::NoGradGuard no_grad;
  const int64_t fan_in = weight.numel() / weight.size(0);
  const double gain = std::sqrt(2.0 / (1 + std::pow(std::sqrt(5.0), 2)));
  const double root = std::sqrt(static_cast<double>(fan_in));
  const double bound = std::sqrt(3.0) * (gain / root);
  weight.uniform_(-bound, bound);
  if (bias.defined()) bias.uniform_(-1 / root, 1 / root);
}

}  // namespace

at::Tensor LogProbabilities(const at::Tensor& scores) {
  return scores.to(at::kFloat).log_softmax(1);
}

Linear::Linear(int64_t in, int64_t out)
    : weight_(at::empty({out, in}, at::kFloat)),
      bias_(at::empty({out}, at::kFloat)) {
  DrawUniform(weight_, bias_);
  AddParameter("weight", weight_);
  AddParameter("bias", bias_);
}

at::Tensor Linear::operator()(const at::Tensor& x) const {
  return at::addmm(bias_, x, weight_.t());
}

Conv2d::Conv2d(const Conv2dOptions& options)
    : options_(options),
      weight_(
          at::empty({options.out, options.in, options.kernel, options.kernel},
                    at::kFloat)) {
  if (options.bias) bias_ = at::empty({options.out}, at::kFloat);
  DrawUniform(weight_, bias_);
  AddParameter("weight", weight_);
  if (options.bias) AddParameter("bias", bias_);
}

at::Tensor Conv2d::operator()(const at::Tensor& x) const {
  return at::conv2d(x, weight_, bias_, options_.stride, options_.padding);
}

void Conv2d::DrawForFanOut() {
  c10::NoGradGuard no_grad;
  const int64_t fan_out = options_.out * options_.kernel * options_.kernel;
  weight_.normal_(0, std::sqrt(2.0) / std::sqrt(static_cast<double>(fan_out)));
}

BatchNorm2d::BatchNorm2d(int64_t channels)
    : weight_(at::ones({channels}, at::kFloat)),
      bias_(at::zeros({channels}, at::kFloat)),
      mean_(at::zeros({channels}, at::kFloat)),
      variance_(at::ones({channels}, at::kFloat)),
      num_batches_(at::zeros({}, at::kLong)) {
  AddParameter("weight", weight_);
  AddParameter("bias", bias_);
  AddBuffer("running_mean", mean_);
  AddBuffer("running_var", variance_);
  AddBuffer("num_batches_tracked", num_batches_);
}

at::Tensor BatchNorm2d::operator()(const at::Tensor& x, bool training) const {
  if (training && gather_ != nullptr) {
    num_batches_.add_(1);
    return SyncBatchNorm(x, {weight_, bias_, mean_, variance_}, kNormMomentum,
                         kNormEpsilon, *gather_);
  }
  if (training) {
    // libtorch's operator itself would divide by zero.
    TORCH_CHECK(x.numel() != x.size(1),
                "batch norm has only one value a channel, of input size ",
                x.sizes(), ": a batch has a single image");
    num_batches_.add_(1);
  }
  return at::batch_norm(x, weight_, bias_, mean_, variance_, training,
                        kNormMomentum, kNormEpsilon, /*cudnn_enabled=*/true);
}

at::Tensor MaxPool2d(const at::Tensor& x, const Pooling& pooling) {
  return at::max_pool2d(x, pooling.kernel, pooling.stride, pooling.padding);
}

at::Tensor GlobalMeanPool2d(const at::Tensor& x) {
  return at::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
}

at::Tensor Dropout(const at::Tensor& x, double dropped, bool training) {
  return at::dropout(x, dropped, training);
}

at::Tensor FeatureDropout(const at::Tensor& x, double dropped, bool training) {
  return at::feature_dropout(x, dropped, training);
}

}  // namespace psring
