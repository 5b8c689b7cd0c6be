// What a model must know of the data that it will see.
#ifndef PSRING_WORKER_DATA_IMAGE_SHAPE_H_
#define PSRING_WORKER_DATA_IMAGE_SHAPE_H_

#include <cstdint>

namespace psring {

struct ImageShape {
  int64_t channels = 0;
  int64_t height = 0;  // pixels
  int64_t width = 0;   // pixels
  int64_t num_classes = 0;

  friend bool operator==(const ImageShape& a, const ImageShape& b) = default;
};

}  // namespace psring

#endif  // PSRING_WORKER_DATA_IMAGE_SHAPE_H_
