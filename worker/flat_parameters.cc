#include "worker/flat_parameters.h"

#include <torch/csrc/autograd/utils/lambda_post_hook.h>

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

FlatMemory MemoryOf(FlatModel& model) {
  return {torch::kCPU, model.parameters.data(), model.gradients.data()};
}

FlatParameters::FlatParameters(torch::nn::Module& module, const Layout& layout,
                               const FlatMemory& memory,
                               OnBucketReady on_bucket_ready)
    : layout_(layout), on_bucket_ready_(std::move(on_bucket_ready)) {
  torch::NoGradGuard no_grad;
  module.to(memory.device);
  const auto options = torch::TensorOptions().device(memory.device);
  int index = 0;
  for (torch::Tensor& parameter : module.parameters()) {
    const Range range = layout.tensor(index);
    const torch::Tensor view = torch::from_blob(memory.parameters + range.begin,
                                                parameter.sizes(), options);
    view.copy_(parameter);
    parameter.set_data(view);
    tensors_.push_back(
        {parameter, torch::from_blob(memory.gradients + range.begin,
                                     parameter.sizes(), options)});
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
  Expect();
}

FlatParameters::~FlatParameters() {
  for (size_t i = 0; i < hooks_.size(); ++i) {
    accumulators_[i]->del_post_hook(hooks_[i]);
  }
}

void FlatParameters::Expect() {
  missing_.assign(layout_.num_buckets(), 0);
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].ready = false;
    ++missing_[layout_.bucket_of_tensor(static_cast<int>(i))];
  }
}

void FlatParameters::OnGradientReady(int index) {
  torch::NoGradGuard no_grad;
  Tensor& tensor = tensors_[index];
  torch::Tensor& gradient = tensor.parameter.mutable_grad();
  if (!gradient.defined()) return;
  tensor.gradient.copy_(gradient);
  gradient.reset();  // the next pass hands over its own again
  tensor.ready = true;
  const int bucket = layout_.bucket_of_tensor(index);
  if (--missing_[bucket] == 0) on_bucket_ready_(bucket);
}

void FlatParameters::FinishBackward() {
  for (Tensor& tensor : tensors_) {
    if (!tensor.ready) tensor.gradient.zero_();
  }
  for (size_t bucket = 0; bucket < missing_.size(); ++bucket) {
    if (missing_[bucket] > 0) on_bucket_ready_(static_cast<int>(bucket));
  }
  Expect();
}

}  // namespace psring
