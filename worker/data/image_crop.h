// Which part of a picture a sample shows: pure arithmetic.
#ifndef PSRING_WORKER_DATA_IMAGE_CROP_H_
#define PSRING_WORKER_DATA_IMAGE_CROP_H_

#include "common/split_mix.h"

namespace psring {

// In pixels of the picture, of which it is a part; neither side is 0.
struct ImageCrop {
  int left = 0;
  int top = 0;
  int width = 0;
  int height = 0;
  bool mirrored = false;  // left and right swapped
};

// For training: 8% to 100% of the picture's area, 3:4 to 4:3 in shape, anywhere
// (Szegedy et al. 2015, "Going deeper with convolutions"), and mirrored in one
// case of two. Where ten draws do not fit into the picture, its middle.
ImageCrop RandomCrop(int width, int height, SplitMix64& random);

// For tests: the square in the middle, 7/8 of the shorter side: what is left of
// 256 pixels where a model takes 224 (Krizhevsky et al. 2012).
ImageCrop CentralCrop(int width, int height);

}  // namespace psring

#endif  // PSRING_WORKER_DATA_IMAGE_CROP_H_
