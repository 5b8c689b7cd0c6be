// Labelled images, held in memory as the files hold them: one byte a pixel.
#ifndef PSRING_WORKER_DATA_DATASET_H_
#define PSRING_WORKER_DATA_DATASET_H_

#include <torch/types.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/image_shape.h"

namespace psring {

// A plain value; copies share the tensors. Read-only once loaded, and then safe
// to read from several threads.
struct Dataset {
  torch::Tensor images;  // uint8 [n, channels, height, width], contiguous
  torch::Tensor labels;  // int64 [n], 0 .. num_classes - 1, contiguous
  // Per channel, of pixels scaled to 0 .. 1.
  std::vector<double> mean, stddev;
  int64_t num_classes = 0;

  int64_t size() const { return labels.defined() ? labels.size(0) : 0; }
  ImageShape shape() const;

  // float32 [indices, channels, height, width]: (pixel / 255 - mean) / stddev,
  // each step rounded to float32 as torchvision's ToTensor and Normalize do.
  // An index outside 0 .. size() - 1 is a bug and throws.
  torch::Tensor BatchImages(absl::Span<const int64_t> indices) const;
  // int64 [indices].
  torch::Tensor BatchLabels(absl::Span<const int64_t> indices) const;
};

struct DatasetPair {
  Dataset train, test;
};

// uint8 / int64 tensors that own a copy of the bytes.
torch::Tensor ImagesFromBytes(absl::string_view pixels, int64_t count,
                              int64_t channels, int64_t height, int64_t width);
torch::Tensor LabelsFromBytes(absl::string_view labels);

// INVALID_ARGUMENT names `path`, the first label of at least `num_classes`, and
// its place.
absl::Status CheckLabels(absl::string_view path, absl::string_view labels,
                         int num_classes);

}  // namespace psring

#endif  // PSRING_WORKER_DATA_DATASET_H_
