#include "worker/data/dataset.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

// What each of the 256 values of a pixel becomes.
using LevelTable = std::array<float, 256>;

LevelTable NormalisedLevels(double mean, double stddev) {
  LevelTable table;
  for (int level = 0; level < 256; ++level) {
    const float scaled = static_cast<float>(level) / 255.0f;
    table[level] =
        (scaled - static_cast<float>(mean)) / static_cast<float>(stddev);
  }
  return table;
}

void CheckIndex(int64_t index, int64_t size) {
  TORCH_CHECK_INDEX(index >= 0 && index < size, "sample ", index,
                    " of a dataset of ", size);
}

}  // namespace

ImageShape Dataset::shape() const {
  return {images.size(1), images.size(2), images.size(3), num_classes};
}

torch::Tensor Dataset::BatchImages(absl::Span<const int64_t> indices) const {
  const ImageShape shape = this->shape();
  const int64_t plane = shape.height * shape.width;
  std::vector<LevelTable> tables;
  for (int64_t c = 0; c < shape.channels; ++c) {
    tables.push_back(NormalisedLevels(mean[c], stddev[c]));
  }
  torch::Tensor batch = at::empty({static_cast<int64_t>(indices.size()),
                                   shape.channels, shape.height, shape.width},
                                  at::kFloat);
  const uint8_t* all = images.data_ptr<uint8_t>();
  float* out = batch.data_ptr<float>();
  for (int64_t index : indices) {
    CheckIndex(index, size());
    const uint8_t* pixels = all + index * shape.channels * plane;
    for (const LevelTable& table : tables) {
      out = std::transform(pixels, pixels + plane, out,
                           [&table](uint8_t level) { return table[level]; });
      pixels += plane;
    }
  }
  return batch;
}

torch::Tensor Dataset::BatchLabels(absl::Span<const int64_t> indices) const {
  torch::Tensor batch =
      at::empty({static_cast<int64_t>(indices.size())}, at::kLong);
  const int64_t* all = labels.data_ptr<int64_t>();
  int64_t* out = batch.data_ptr<int64_t>();
  for (int64_t index : indices) {
    CheckIndex(index, size());
    *out++ = all[index];
  }
  return batch;
}

torch::Tensor ImagesFromBytes(absl::string_view pixels, int64_t count,
                              int64_t channels, int64_t height, int64_t width) {
  torch::Tensor images = at::empty({count, channels, height, width}, at::kByte);
  TORCH_CHECK(images.numel() == static_cast<int64_t>(pixels.size()),
              pixels.size(), " bytes for ", images.numel(), " pixels");
  std::memcpy(images.data_ptr<uint8_t>(), pixels.data(), pixels.size());
  return images;
}

torch::Tensor LabelsFromBytes(absl::string_view labels) {
  torch::Tensor tensor =
      at::empty({static_cast<int64_t>(labels.size())}, at::kLong);
  std::transform(labels.begin(), labels.end(), tensor.data_ptr<int64_t>(),
                 [](char label) { return static_cast<uint8_t>(label); });
  return tensor;
}

absl::Status CheckLabels(absl::string_view path, absl::string_view labels,
                         int num_classes) {
  for (size_t i = 0; i < labels.size(); ++i) {
    const int label = static_cast<uint8_t>(labels[i]);
    if (label < num_classes) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": label ", i, " is ", label, ", expected 0 to ",
                     num_classes - 1, ". Is this the right file?"));
  }
  return absl::OkStatus();
}

}  // namespace psring
