#include "worker/data/dataset.h"

#include <algorithm>
#include <array>
#include <stdexcept>

#include "absl/status/statusor.h"
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

// The pixels of one image, in `room` where memory does not hold them.
absl::StatusOr<const uint8_t*> PixelsOf(const Dataset& dataset, int64_t index,
                                        uint64_t draw,
                                        absl::Span<uint8_t> room) {
  if (dataset.source == nullptr) return dataset.Image(index).data();
  CheckIndex(index, dataset.size());
  absl::Status read = dataset.source->Read(index, draw, room);
  if (!read.ok()) return read;
  return room.data();
}

}  // namespace

absl::Span<const uint8_t> Dataset::Image(int64_t index) const {
  CheckIndex(index, size());
  return absl::MakeSpan(pixels).subspan(index * pixels_per_image(),
                                        pixels_per_image());
}

absl::Status Dataset::CopyImages(absl::Span<const int64_t> indices,
                                 uint64_t draw, absl::Span<float> out) const {
  std::vector<LevelTable> tables;
  for (int64_t c = 0; c < shape.channels; ++c) {
    tables.push_back(NormalisedLevels(mean[c], stddev[c]));
  }
  std::vector<uint8_t> room(source == nullptr ? 0 : pixels_per_image());
  const int64_t plane = shape.height * shape.width;
  float* next = out.data();
  for (int64_t index : indices) {
    const auto image = PixelsOf(*this, index, draw, absl::MakeSpan(room));
    if (!image.ok()) return image.status();
    const uint8_t* channel = *image;
    for (const LevelTable& table : tables) {
      next = std::transform(channel, channel + plane, next,
                            [&table](uint8_t level) { return table[level]; });
      channel += plane;
    }
  }
  return absl::OkStatus();
}

absl::Status Dataset::CopyPixels(absl::Span<const int64_t> indices,
                                 uint64_t draw, absl::Span<uint8_t> out) const {
  const int64_t size = pixels_per_image();
  for (size_t i = 0; i < indices.size(); ++i) {
    const absl::Span<uint8_t> place = out.subspan(i * size, size);
    const auto image = PixelsOf(*this, indices[i], draw, place);
    if (!image.ok()) return image.status();
    if (*image != place.data()) std::copy_n(*image, size, place.data());
  }
  return absl::OkStatus();
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
