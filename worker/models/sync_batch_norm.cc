#include "worker/models/sync_batch_norm.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/var_mean.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace psring {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Over which a channel's statistics go.
constexpr int64_t kAxes[] = {0, 2, 3};

// In the shape of images: [1, channels, 1, 1].
at::Tensor PerChannel(const at::Tensor& values) {
  return values.reshape({1, -1, 1, 1});
}

// Host memory, whatever the device.
std::vector<float> Numbers(const at::Tensor& values) {
  const at::Tensor here = values.to(at::kCPU, at::kFloat).contiguous();
  const float* const data = here.data_ptr<float>();
  return {data, data + here.numel()};
}

at::Tensor OnDeviceOf(const at::Tensor& like,
                      const std::vector<float>& values) {
  const at::Tensor here =
      at::empty({static_cast<int64_t>(values.size())}, at::kFloat);
  std::copy(values.begin(), values.end(), here.data_ptr<float>());
  return here.to(like.device());
}

// Of all workers' values of a channel.
struct Statistics {
  double count = 0;
  std::vector<float> mean;
  std::vector<float> squares;  // sums of squared distances from the mean
};

// By the formula of two parts' variance (Chan, Golub and LeVeque 1979), in
// float64, worker after worker: the same bits everywhere.
Statistics Combine(const std::vector<float>& all, int64_t channels) {
  const int64_t stride = 1 + 2 * channels;
  const auto workers = static_cast<int64_t>(all.size()) / stride;
  Statistics result;
  for (int64_t c = 0; c < channels; ++c) {
    double count = 0;
    double mean = 0;
    double squares = 0;
    for (int64_t w = 0; w < workers; ++w) {
      const float* const theirs = all.data() + w * stride;
      const double more = theirs[0];
      if (more == 0) continue;
      const double apart = theirs[1 + c] - mean;
      const double sum = count + more;
      mean += apart * more / sum;
      squares += theirs[1 + channels + c] + apart * apart * count * more / sum;
      count = sum;
    }
    result.count = count;
    result.mean.push_back(static_cast<float>(mean));
    result.squares.push_back(static_cast<float>(squares));
  }
  return result;
}

Statistics StatisticsOf(const at::Tensor& x, GatherStatistics& gather) {
  const int64_t channels = x.size(1);
  const int64_t count = x.numel() / channels;
  std::vector<float> mine = {static_cast<float>(count)};
  mine.resize(1 + 2 * channels);
  if (count > 0) {
    const auto [variance, mean] =
        at::var_mean(x.to(at::kFloat), kAxes, /*unbiased=*/false);
    // Together: on a GPU each transfer is waited for.
    const std::vector<float> both =
        Numbers(at::stack({mean, variance.mul(count)}));
    std::copy(both.begin(), both.end(), mine.begin() + 1);
  }
  return Combine(gather.Gather(mine), channels);
}

// The mean over all workers' values of what each has summed.
at::Tensor MeanOverAll(const at::Tensor& sums, double count,
                       GatherStatistics& gather) {
  const std::vector<float> mine = Numbers(sums);
  const std::vector<float> all = gather.Gather(mine);
  std::vector<float> means;
  for (size_t i = 0; i < mine.size(); ++i) {
    double sum = 0;
    for (size_t at = i; at < all.size(); at += mine.size()) sum += all[at];
    means.push_back(static_cast<float>(sum / count));
  }
  return OnDeviceOf(sums, means);
}

class Normalisation : public torch::autograd::Function<Normalisation> {
 public:
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor& mean, const at::Tensor& variance,
                            double epsilon, double count, int64_t gather) {
    context->save_for_backward(
        {x, weight, mean, variance.add(epsilon).rsqrt()});
    context->saved_data["count"] = count;
    context->saved_data["gather"] = gather;
    return at::batch_norm(x, weight, bias, mean, variance, /*training=*/false,
                          /*momentum=*/0, epsilon, /*cudnn_enabled=*/true);
  }

  static variable_list backward(AutogradContext* context,
                                variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor scale = PerChannel(saved[3]);
    auto& gather = *reinterpret_cast<GatherStatistics*>(
        context->saved_data["gather"].toInt());
    const at::Tensor dy = gradients[0].to(at::kFloat);
    const at::Tensor normal =
        x.to(at::kFloat).sub(PerChannel(saved[2])).mul_(scale);
    const at::Tensor for_bias = dy.sum(kAxes);
    const at::Tensor for_weight = dy.mul(normal).sum(kAxes);
    const int64_t channels = x.size(1);
    at::Tensor sums = at::empty({2, channels}, for_bias.options());
    sums[0].copy_(for_bias);
    sums[1].copy_(for_weight);
    const at::Tensor means =
        MeanOverAll(sums.flatten(), context->saved_data["count"].toDouble(),
                    gather)
            .reshape({2, channels});
    const at::Tensor dx = dy.sub(PerChannel(means[0]))
                              .sub_(normal.mul(PerChannel(means[1])))
                              .mul_(scale)
                              .mul_(PerChannel(weight));
    const at::Tensor none;
    return {dx.to(x.scalar_type()),
            for_weight,
            for_bias,
            none,
            none,
            none,
            none,
            none};
  }
};

}  // namespace

at::Tensor SyncBatchNorm(const at::Tensor& x, const NormTensors& norm,
                         double momentum, double epsilon,
                         GatherStatistics& gather) {
  at::Tensor mean;
  at::Tensor variance;
  double count = 0;
  {
    const c10::NoGradGuard no_grad;
    const Statistics all = StatisticsOf(x, gather);
    count = all.count;
    TORCH_CHECK(count > 1,
                "batch norm needs more than one value per channel among all "
                "workers; this one's input has size ",
                x.sizes());
    std::vector<float> both = all.mean;
    both.insert(both.end(), all.squares.begin(), all.squares.end());
    const at::Tensor there = OnDeviceOf(x, both).reshape({2, -1});
    mean = there[0];
    const at::Tensor squares = there[1];
    variance = squares.div(count);
    norm.running_mean.lerp_(mean, momentum);
    norm.running_variance.lerp_(squares.div(count - 1), momentum);
  }
  return Normalisation::apply(x, norm.weight, norm.bias, mean, variance,
                              epsilon, count,
                              reinterpret_cast<int64_t>(&gather));
}

}  // namespace psring
