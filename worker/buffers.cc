#include "worker/buffers.h"

#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

const char* DTypeName(torch::ScalarType type) {
  return type == torch::kInt64 ? "I64" : "F32";
}

}  // namespace

std::vector<ExtraTensor> BuffersOf(const torch::nn::Module& module) {
  std::vector<ExtraTensor> buffers;
  for (const auto& item : module.named_buffers()) {
    const torch::Tensor value = item.value().cpu().contiguous();
    ExtraTensor buffer;
    buffer.name = item.key();
    buffer.dtype = DTypeName(value.scalar_type());
    buffer.shape = value.sizes().vec();
    buffer.bytes.assign(static_cast<const char*>(value.data_ptr()),
                        value.nbytes());
    buffers.push_back(std::move(buffer));
  }
  return buffers;
}

absl::Status SetBuffers(torch::nn::Module& module,
                        const std::vector<ExtraTensor>& values) {
  torch::NoGradGuard no_grad;
  std::map<std::string, const ExtraTensor*> by_name;
  for (const ExtraTensor& value : values) by_name[value.name] = &value;
  for (auto& item : module.named_buffers()) {
    torch::Tensor& buffer = item.value();
    const auto found = by_name.find(item.key());
    if (found == by_name.end() ||
        found->second->bytes.size() != buffer.nbytes() ||
        found->second->shape != buffer.sizes().vec() ||
        found->second->dtype != DTypeName(buffer.scalar_type())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "buffer ", item.key(), " is missing, or of another shape or type"));
    }
    torch::Tensor value = torch::empty_like(buffer, torch::kCPU);
    std::memcpy(value.data_ptr(), found->second->bytes.data(), value.nbytes());
    buffer.copy_(value);
  }
  return absl::OkStatus();
}

}  // namespace psring
