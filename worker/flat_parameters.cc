#include "worker/flat_parameters.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace psring {

std::vector<proto::TensorShape> ShapesOf(const torch::nn::Module& module) {
  std::vector<proto::TensorShape> shapes;
  for (const auto& parameter : module.named_parameters()) {
    proto::TensorShape shape;
    shape.set_name(parameter.key());
    for (int64_t size : parameter.value().sizes()) shape.add_shape(size);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

FlatParameters::FlatParameters(torch::nn::Module& module, FlatModel& model,
                               OnBucketReady on_bucket_ready)
    : model_(model),
      on_bucket_ready_(std::move(on_bucket_ready)),
      tensors_in_bucket_(model.layout.num_buckets(), 0) {
  torch::NoGradGuard no_grad;
  int index = 0;
  for (torch::Tensor& parameter : module.parameters()) {
    const Range range = model_.layout.tensor(index);
    const torch::Tensor view = torch::from_blob(
        model_.parameters.data() + range.begin, parameter.sizes());
    view.copy_(parameter);
    parameter.set_data(view);
    parameter.mutable_grad() = torch::from_blob(
        model_.gradients.data() + range.begin, parameter.sizes());
    ++tensors_in_bucket_[model_.layout.bucket_of_tensor(index)];
    auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
    hooks_.push_back(accumulator->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(
            [this, index](const torch::autograd::variable_list& outputs,
                          const torch::autograd::variable_list&) {
              OnGradientReady(index);
              return outputs;
            })));
    accumulators_.push_back(std::move(accumulator));
    ++index;
  }
  missing_ = tensors_in_bucket_;
}

FlatParameters::~FlatParameters() {
  for (size_t i = 0; i < hooks_.size(); ++i) {
    accumulators_[i]->del_post_hook(hooks_[i]);
  }
}

void FlatParameters::ZeroGradients() {
  missing_ = tensors_in_bucket_;
  std::memset(model_.gradients.data(), 0,
              model_.gradients.size() * sizeof(float));
}

void FlatParameters::OnGradientReady(int tensor) {
  const int bucket = model_.layout.bucket_of_tensor(tensor);
  if (--missing_[bucket] == 0) on_bucket_ready_(bucket);
}

void FlatParameters::FinishBackward() {
  for (size_t bucket = 0; bucket < missing_.size(); ++bucket) {
    if (missing_[bucket] > 0) on_bucket_ready_(static_cast<int>(bucket));
    missing_[bucket] = 0;
  }
}

}  // namespace psring
