// The tensors of a model under PyTorch's names.
//
// In the place of torch::nn::Module, whose headers cost every file that
// includes them 20 s of compilation.
#ifndef PSRING_WORKER_MODELS_MODULE_H_
#define PSRING_WORKER_MODELS_MODULE_H_

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace psring {

struct NamedTensor {
  std::string name;
  at::Tensor tensor;
};

// Copies share the tensors.
class Module {
 public:
  virtual ~Module() = default;

  // What is trained, and what is not (batch norm's running statistics); each in
  // the order of registration.
  const std::vector<NamedTensor>& parameters() const { return parameters_; }
  const std::vector<NamedTensor>& buffers() const { return buffers_; }

 protected:
  // From now on `tensor` takes a gradient.
  void AddParameter(std::string name, at::Tensor tensor);
  void AddBuffer(std::string name, at::Tensor tensor);
  // All tensors of `child`, as NAME.theirs.
  void AddModule(const std::string& name, const Module& child);

 private:
  std::vector<NamedTensor> parameters_;
  std::vector<NamedTensor> buffers_;
};

}  // namespace psring

#endif  // PSRING_WORKER_MODELS_MODULE_H_
