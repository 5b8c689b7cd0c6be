// Labelled images, one byte a pixel: held in memory, or read when they are
// asked for. No libtorch: worker/batch_loader.h makes tensors of them.
#ifndef PSRING_WORKER_DATA_DATASET_H_
#define PSRING_WORKER_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "worker/data/image_shape.h"
#include "worker/data/image_source.h"

namespace psring {

// A plain value. Read-only once loaded, and then safe to read from several
// threads.
struct Dataset {
  std::vector<uint8_t> pixels;                // [size, channels, height, width]
  std::shared_ptr<const ImageSource> source;  // null: all are in `pixels`
  std::vector<int64_t> labels;                // [size], 0 .. num_classes - 1
  ImageShape shape;
  // Per channel, of pixels scaled to 0 .. 1.
  std::vector<double> mean, stddev;

  int64_t size() const { return static_cast<int64_t>(labels.size()); }
  int64_t pixels_per_image() const {
    return shape.channels * shape.height * shape.width;
  }
  // The pixels of one image, of a data set without a source. Throws
  // std::out_of_range, as those below do, for an index outside 0 .. size() - 1,
  // which is a bug.
  absl::Span<const uint8_t> Image(int64_t index) const;

  // Fills `out`, [indices, channels, height, width]: (pixel / 255 - mean) /
  // stddev, each step rounded to float32 as torchvision's ToTensor and
  // Normalize do. `draw` and errors: those of the source.
  absl::Status CopyImages(absl::Span<const int64_t> indices, uint64_t draw,
                          absl::Span<float> out) const;
  // The pixels as they are.
  absl::Status CopyPixels(absl::Span<const int64_t> indices, uint64_t draw,
                          absl::Span<uint8_t> out) const;
  // Fills `out`, [indices].
  void CopyLabels(absl::Span<const int64_t> indices,
                  absl::Span<int64_t> out) const;
};

struct DatasetPair {
  Dataset train, test;
  // What tells files from others: "listing=" and a hash of their names, where
  // training reads them, or "crc32=" and the checksum of what was read; empty:
  // there are no files.
  std::string identity = {};
};

std::vector<uint8_t> PixelsFromBytes(absl::string_view bytes);
std::vector<int64_t> LabelsFromBytes(absl::string_view bytes);

// INVALID_ARGUMENT names `path`, the first label of at least `num_classes`, and
// its place.
absl::Status CheckLabels(absl::string_view path, absl::string_view labels,
                         int num_classes);

}  // namespace psring

#endif  // PSRING_WORKER_DATA_DATASET_H_
