// Makes pictures, and the files that hold them.
#ifndef PSRING_TESTS_WORKER_DATA_PICTURES_H_
#define PSRING_TESTS_WORKER_DATA_PICTURES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace psring::testing {

// [height, width, 3], red, green and blue.
struct Picture {
  int width = 0;
  int height = 0;
  std::vector<uint8_t> rgb;
};

// Red grows from left to right, green from top to bottom, both from 0 to 255;
// blue is `blue` everywhere.
Picture Slope(int width, int height, int blue = 128);

// In best quality, so that a smooth picture differs by a level or two.
std::string Jpeg(const Picture& picture);
// With a sample of colour for so many of brightness, 1 to 4.
std::string SampledJpeg(const Picture& picture, int across, int down);
std::string GreyJpeg(const Picture& picture);
// In cyan, magenta, yellow and black, inverted, as Adobe's programs write it.
std::string CmykJpeg(const Picture& picture);
std::string Png(const Picture& picture);
std::string DeepPng(const Picture& picture);  // 16 bits a channel
std::string TransparentPng(const Picture& picture);

// train/ and val/ of two classes, "bottom" and "top": a picture of class top is
// bright in its upper half, one of class bottom in its lower. `train` and `val`
// pictures a class, JPEG and PNG by turns, of different sizes.
void WriteTinyImageFolder(const std::string& folder, int train, int val);

}  // namespace psring::testing

#endif  // PSRING_TESTS_WORKER_DATA_PICTURES_H_
