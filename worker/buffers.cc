#include "worker/buffers.h"

#include <c10/core/GradMode.h>

#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "worker/torch/tensors.h"

namespace psring {
namespace {

const char* DTypeName(at::ScalarType type) {
  return type == at::kLong ? "I64" : "F32";
}

}  // namespace

std::vector<ExtraTensor> BuffersOf(const Module& module) {
  std::vector<ExtraTensor> buffers;
  for (const NamedTensor& named : module.buffers()) {
    const at::Tensor value = named.tensor.cpu().contiguous();
    ExtraTensor buffer;
    buffer.name = named.name;
    buffer.dtype = DTypeName(value.scalar_type());
    buffer.shape = value.sizes().vec();
    buffer.bytes.assign(static_cast<const char*>(value.data_ptr()),
                        value.nbytes());
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

absl::Status SetBuffers(const Module& module,
                        const std::vector<ExtraTensor>& values) {
  c10::NoGradGuard no_grad;
  std::map<std::string, const ExtraTensor*> by_name;
  for (const ExtraTensor& value : values) by_name[value.name] = &value;
  for (const NamedTensor& named : module.buffers()) {
    const at::Tensor& buffer = named.tensor;
    const auto found = by_name.find(named.name);
    if (found == by_name.end() ||
        found->second->bytes.size() != buffer.nbytes() ||
        found->second->shape != buffer.sizes().vec() ||
        found->second->dtype != DTypeName(buffer.scalar_type())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "buffer ", named.name, " is missing, or of another shape or type"));
    }
    const at::Tensor value = NewTensor(buffer.sizes(), buffer.scalar_type());
    std::memcpy(value.data_ptr(), found->second->bytes.data(), value.nbytes());
    buffer.copy_(value);
  }
  return absl::OkStatus();
}

}  // namespace psring
