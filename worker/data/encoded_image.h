// Pictures in JPEG and PNG: the only door to libjpeg-turbo and libpng.
#ifndef PSRING_WORKER_DATA_ENCODED_IMAGE_H_
#define PSRING_WORKER_DATA_ENCODED_IMAGE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "worker/data/image_crop.h"

namespace psring {

class ImageDecoder;  // of one format

// A picture as its file holds it. Lives on one thread.
class EncodedImage {
 public:
  // Larger ones are refused, whatever their header claims: a file of a few
  // bytes could else ask for any memory.
  static constexpr int64_t kMostPixels = int64_t{1} << 27;

  // Reads the header. DATA_LOSS: neither JPEG nor PNG, damaged, or too large;
  // it does not name a file, which nobody has told.
  static absl::StatusOr<EncodedImage> Parse(std::string bytes);

  EncodedImage(EncodedImage&&) noexcept;
  ~EncodedImage();

  int width() const;   // pixels
  int height() const;  // pixels

  // Once. Fills `out`, [3, side, side], red, green and blue, with the part
  // `crop`, scaled (resample.h; a JPEG of twice the size or more first by its
  // own decoder, which moves borders by half a pixel of what is shown at most).
  // Grey becomes three equal channels; transparency and colour profiles are
  // ignored, but for a PNG's gamma. DATA_LOSS: cut short, or so damaged that
  // the decoder sees it.
  absl::Status Draw(const ImageCrop& crop, int side, absl::Span<uint8_t> out);

 private:
  explicit EncodedImage(std::unique_ptr<ImageDecoder> decoder);

  std::unique_ptr<ImageDecoder> decoder_;  // which has read the header
};

}  // namespace psring

#endif  // PSRING_WORKER_DATA_ENCODED_IMAGE_H_
