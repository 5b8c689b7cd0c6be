#include "worker/data/dataset.h"

#include <algorithm>
#include <array>
#include <stdexcept>

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
  if (index >= 0 && index < size) return;
  throw std::out_of_range(
      absl::StrCat("sample ", index, " of a dataset of ", size));
}

}  // namespace

absl::Span<const uint8_t> Dataset::Image(int64_t index) const {
  CheckIndex(index, size());
  return absl::MakeSpan(pixels).subspan(index * pixels_per_image(),
                                        pixels_per_image());
}

void Dataset::CopyImages(absl::Span<const int64_t> indices,
                         absl::Span<float> out) const {
  std::vector<LevelTable> tables;
  for (int64_t c = 0; c < shape.channels; ++c) {
    tables.push_back(NormalisedLevels(mean[c], stddev[c]));
  }
  const int64_t plane = shape.height * shape.width;
  float* next = out.data();
  for (int64_t index : indices) {
    const uint8_t* channel = Image(index).data();
    for (const LevelTable& table : tables) {
      next = std::transform(channel, channel + plane, next,
                            [&table](uint8_t level) { return table[level]; });
      channel += plane;
    }
  }
}

void Dataset::CopyPixels(absl::Span<const int64_t> indices,
                         absl::Span<uint8_t> out) const {
  uint8_t* next = out.data();
  for (int64_t index : indices) {
    const absl::Span<const uint8_t> image = Image(index);
    next = std::copy(image.begin(), image.end(), next);
  }
}

void Dataset::CopyLabels(absl::Span<const int64_t> indices,
                         absl::Span<int64_t> out) const {
  for (size_t i = 0; i < indices.size(); ++i) {
    CheckIndex(indices[i], size());
    out[i] = labels[indices[i]];
  }
}

std::vector<uint8_t> PixelsFromBytes(absl::string_view bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<int64_t> LabelsFromBytes(absl::string_view bytes) {
  std::vector<int64_t> labels;
  labels.reserve(bytes.size());
  for (char label : bytes) labels.push_back(static_cast<uint8_t>(label));
  return labels;
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
