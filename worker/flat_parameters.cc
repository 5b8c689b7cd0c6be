#include "worker/flat_parameters.h"

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <memory>
#include <utility>

#include "worker/torch/tensors.h"

namespace psring {
namespace {

using torch::autograd::variable_list;

// Runs after the node that accumulates a parameter's gradient.
class GradientHook : public torch::autograd::FunctionPostHook {
 public:
  explicit GradientHook(std::function<void()> ready)
      : ready_(std::move(ready)) {}

  variable_list operator()(const variable_list& outputs,
                           const variable_list&) override {
    ready_();
    return outputs;
  }

 private:
  const std::function<void()> ready_;
};

}  // namespace

struct FlatParameters::Tensor {
  at::Tensor parameter;
  at::Tensor gradient;  // view
  // Kept alive for its hook. The pointer's type differs between versions of
  // libtorch.
  decltype(torch::autograd::impl::grad_accumulator(
      std::declval<const at::Tensor&>())) accumulator;
  uintptr_t hook;
  bool ready = false;  // in this backward pass
};

std::vector<proto::TensorShape> ShapesOf(const Module& module) {
  std::vector<proto::TensorShape> shapes;
  for (const NamedTensor& parameter : module.parameters()) {
    proto::TensorShape shape;
    shape.set_name(parameter.name);
    for (int64_t size : parameter.tensor.sizes()) shape.add_shape(size);
    shapes.push_back(std::move(shape));
  }
  return shapes;
}

FlatMemory MemoryOf(FlatModel& model) {
  return {c10::kCPU, model.parameters.data(), model.gradients.data()};
}

FlatParameters::FlatParameters(const Module& module, const Layout& layout,
                               const FlatMemory& memory,
                               OnBucketReady on_bucket_ready,
                               std::optional<bool> by_bucket)
    : layout_(layout),
      on_bucket_ready_(std::move(on_bucket_ready)),
      by_bucket_(by_bucket.value_or(!memory.device.is_cpu())),
      from_(layout.num_buckets()),
      to_(layout.num_buckets()) {
  c10::NoGradGuard no_grad;
  for (const NamedTensor& buffer : module.buffers()) {
    buffer.tensor.set_data(buffer.tensor.to(memory.device));
  }
  int index = 0;
  for (const NamedTensor& named : module.parameters()) {
    const at::Tensor& parameter = named.tensor;
    const int64_t begin = layout.tensor(index).begin;
    const at::Tensor view =
        TensorAt(memory.parameters + begin, parameter.sizes(), memory.device);
    view.copy_(parameter);
    parameter.set_data(view);
    const auto accumulator = torch::autograd::impl::grad_accumulator(parameter);
    const uintptr_t hook =
        accumulator->add_post_hook(std::make_unique<GradientHook>(
            [this, index] { OnGradientReady(index); }));
    tensors_.push_back(
        {parameter,
         TensorAt(memory.gradients + begin, parameter.sizes(), memory.device),
         accumulator, hook});
    ++index;
  }
  Expect();
}

FlatParameters::~FlatParameters() {
  for (const Tensor& tensor : tensors_) {
    tensor.accumulator->del_post_hook(tensor.hook);
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
  c10::NoGradGuard no_grad;
  Tensor& tensor = tensors_[index];
  at::Tensor& gradient = tensor.parameter.mutable_grad();
  if (!gradient.defined()) return;
  const int bucket = layout_.bucket_of_tensor(index);
  if (by_bucket_) {
    from_[bucket].push_back(gradient);
    to_[bucket].push_back(tensor.gradient);
  } else {
    tensor.gradient.copy_(gradient);
  }
  gradient.reset();  // the next pass hands over its own again
  tensor.ready = true;
  if (--missing_[bucket] > 0) return;
  CopyBucket(bucket);
  on_bucket_ready_(bucket);
}

void FlatParameters::CopyBucket(int bucket) {
  if (from_[bucket].empty()) return;
  CopyAll(to_[bucket], from_[bucket]);
  to_[bucket].clear();
  from_[bucket].clear();
}

void FlatParameters::FinishBackward() {
  for (Tensor& tensor : tensors_) {
    if (!tensor.ready) tensor.gradient.zero_();
  }
  for (size_t bucket = 0; bucket < missing_.size(); ++bucket) {
    if (missing_[bucket] == 0) continue;
    CopyBucket(static_cast<int>(bucket));
    on_bucket_ready_(static_cast<int>(bucket));
  }
  Expect();
}

}  // namespace psring
