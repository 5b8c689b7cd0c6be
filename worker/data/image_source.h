// Images that are made when they are asked for.
#ifndef PSRING_WORKER_DATA_IMAGE_SOURCE_H_
#define PSRING_WORKER_DATA_IMAGE_SOURCE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace psring {

// Several threads may read at once.
class ImageSource {
 public:
  virtual ~ImageSource() = default;

  // Fills `out`, [channels, height, width], with image `index`, which exists.
  // Equal `draw`s give equal pixels; what is random about them depends on it.
  // An error names the image. Blocks on the disk.
  virtual absl::Status Read(int64_t index, uint64_t draw,
                            absl::Span<uint8_t> out) const = 0;
};

}  // namespace psring

#endif  // PSRING_WORKER_DATA_IMAGE_SOURCE_H_
