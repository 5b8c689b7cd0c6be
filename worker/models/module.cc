#include "worker/models/module.h"

#include <utility>

namespace psring {

void Module::AddParameter(std::string name, at::Tensor tensor) {
  tensor.set_requires_grad(true);
  parameters_.push_back({std::move(name), std::move(tensor)});
}

void Module::AddBuffer(std::string name, at::Tensor tensor) {
  buffers_.push_back({std::move(name), std::move(tensor)});
}

void Module::AddModule(const std::string& name, const Module& child) {
  for (const NamedTensor& parameter : child.parameters()) {
    parameters_.push_back({name + "." + parameter.name, parameter.tensor});
  }
  for (const NamedTensor& buffer : child.buffers()) {
    buffers_.push_back({name + "." + buffer.name, buffer.tensor});
  }
}

}  // namespace psring
