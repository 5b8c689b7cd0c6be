#include "worker/data/encoded_image.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/data/resample.h"

namespace psring {
namespace {

constexpr int kBytes = 4;  // of a decoded pixel: red, green, blue, and one more

// Decoded pixels, row by row.
struct Pixels {
  Pixels(int width, int height)
      : width(width),
        height(height),
        bytes(new uint8_t[static_cast<size_t>(width) * height * kBytes]) {}

  int stride() const { return width * kBytes; }

  int width;
  int height;
  std::unique_ptr<uint8_t[]> bytes;
};

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("damaged: ", what));
}

const uint8_t* BytesOf(const std::string& bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

// Of one format; the bytes outlive it.
class Decoder {
 public:
  virtual ~Decoder() = default;

  // Finds width and height; the first call.
  virtual absl::Status ReadHeader() = 0;
  // One pixel for `divisor` squared: 1, 2, 4 or 8; 1 where it cannot divide.
  virtual absl::StatusOr<Pixels> Decode(int divisor) = 0;
  virtual bool CanDivide() const = 0;

  int64_t width() const { return width_; }
  int64_t height() const { return height_; }

 protected:
  int64_t width_ = 0;
  int64_t height_ = 0;
};

class Jpeg : public Decoder {
 public:
  explicit Jpeg(const std::string& bytes)
      : bytes_(bytes), handle_(tjInitDecompress(), tjDestroy) {}

  absl::Status ReadHeader() override {
    if (handle_ == nullptr) return absl::ResourceExhaustedError("no memory");
    int width = 0;
    int height = 0;
    int subsampling = 0;
    if (tjDecompressHeader3(handle_.get(), BytesOf(bytes_), bytes_.size(),
                            &width, &height, &subsampling, &colours_) != 0) {
      return Damaged(tjGetErrorStr2(handle_.get()));
    }
    width_ = width;
    height_ = height;
    return absl::OkStatus();
  }

  bool CanDivide() const override { return true; }

  absl::StatusOr<Pixels> Decode(int divisor) override {
    const tjscalingfactor factor = {1, divisor};
    Pixels pixels(static_cast<int>(TJSCALED(width_, factor)),
                  static_cast<int>(TJSCALED(height_, factor)));
    const bool four_inks = colours_ == TJCS_CMYK || colours_ == TJCS_YCCK;
    const int code =
        tjDecompress2(handle_.get(), BytesOf(bytes_), bytes_.size(),
                      pixels.bytes.get(), pixels.width, pixels.stride(),
                      pixels.height, four_inks ? TJPF_CMYK : TJPF_RGBX, 0);
    if (code != 0 && IsFatal()) return Damaged(tjGetErrorStr2(handle_.get()));
    if (four_inks) MixInks(pixels);
    return pixels;
  }

 private:
  // Stray bytes between or behind the data are common, and harm nothing.
  bool IsFatal() const {
    return tjGetErrorCode(handle_.get()) != TJERR_WARNING ||
           absl::StrContains(tjGetErrorStr2(handle_.get()), "remature end");
  }

  // From cyan, magenta, yellow and black, where 255 is no ink, as Adobe's
  // programs write them.
  static void MixInks(Pixels& pixels) {
    const size_t size = static_cast<size_t>(pixels.stride()) * pixels.height;
    for (size_t i = 0; i < size; i += kBytes) {
      uint8_t* const pixel = pixels.bytes.get() + i;
      for (int c = 0; c < 3; ++c) pixel[c] = pixel[c] * pixel[3] / 255;
    }
  }

  const std::string& bytes_;
  const std::unique_ptr<void, int (*)(void*)> handle_;
  int colours_ = 0;
};

class Png : public Decoder {
 public:
  explicit Png(const std::string& bytes) : bytes_(bytes) {
    image_.version = PNG_IMAGE_VERSION;
  }
  ~Png() override { png_image_free(&image_); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  absl::Status ReadHeader() override {
    png_image_begin_read_from_memory(&image_, bytes_.data(), bytes_.size());
    if (PNG_IMAGE_FAILED(image_)) return Damaged(image_.message);
    width_ = image_.width;
    height_ = image_.height;
    return absl::OkStatus();
  }

  bool CanDivide() const override { return false; }

  absl::StatusOr<Pixels> Decode(int /*divisor*/) override {
    Pixels pixels(static_cast<int>(width_), static_cast<int>(height_));
    image_.format = PNG_FORMAT_RGBA;
    png_image_finish_read(&image_, /*background=*/nullptr, pixels.bytes.get(),
                          pixels.stride(), /*colormap=*/nullptr);
    if (PNG_IMAGE_FAILED(image_)) return Damaged(image_.message);
    return pixels;
  }

 private:
  const std::string& bytes_;
  png_image image_ = {};
};

// With its header read.
absl::StatusOr<std::unique_ptr<Decoder>> Open(const std::string& bytes) {
  std::unique_ptr<Decoder> decoder;
  if (absl::StartsWith(bytes, "\xff\xd8\xff")) {
    decoder = std::make_unique<Jpeg>(bytes);
  } else if (absl::StartsWith(bytes, "\x89PNG\r\n\x1a\n")) {
    decoder = std::make_unique<Png>(bytes);
  } else {
    return absl::DataLossError("neither JPEG nor PNG");
  }
  if (absl::Status s = decoder->ReadHeader(); !s.ok()) return s;
  return decoder;
}

absl::Status CheckSize(int64_t width, int64_t height) {
  if (width < 1 || height < 1) return Damaged("it has no pixels");
  if (width <= EncodedImage::kMostPixels / height) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(width, "x", height, " pixels: more than the ",
                   EncodedImage::kMostPixels, " allowed"));
}

// By how much a JPEG may be smaller at once without what is shown having too
// few pixels. Its other divisors are slower.
int DivisorOf(const ImageCrop& crop, int side) {
  int divisor = 8;
  while (divisor > 1 && std::min(crop.width, crop.height) < side * divisor) {
    divisor /= 2;
  }
  return divisor;
}

// Where a border of the picture lies after the division, to the nearest pixel:
// at most half a pixel of what is shown from where it should be.
int Divided(int border, int divisor, int most) {
  return std::min((border + divisor / 2) / divisor, most);
}

PixelView PartOf(const Pixels& pixels, const ImageCrop& crop, int divisor) {
  const int left = Divided(crop.left, divisor, pixels.width - 1);
  const int top = Divided(crop.top, divisor, pixels.height - 1);
  const int right = Divided(crop.left + crop.width, divisor, pixels.width);
  const int bottom = Divided(crop.top + crop.height, divisor, pixels.height);
  return {pixels.bytes.get() + static_cast<size_t>(top) * pixels.stride() +
              static_cast<size_t>(left) * kBytes,
          pixels.stride(), std::max(right - left, 1),
          std::max(bottom - top, 1)};
}

}  // namespace

absl::StatusOr<EncodedImage> EncodedImage::Parse(std::string bytes) {
  const auto decoder = Open(bytes);
  if (!decoder.ok()) return decoder.status();
  const int64_t width = (*decoder)->width();
  const int64_t height = (*decoder)->height();
  if (absl::Status s = CheckSize(width, height); !s.ok()) return s;
  return EncodedImage(std::move(bytes), static_cast<int>(width),
                      static_cast<int>(height));
}

absl::Status EncodedImage::Draw(const ImageCrop& crop, int side,
                                absl::Span<uint8_t> out) const {
  const auto decoder = Open(bytes_);
  if (!decoder.ok()) return decoder.status();
  const int divisor = (*decoder)->CanDivide() ? DivisorOf(crop, side) : 1;
  const auto pixels = (*decoder)->Decode(divisor);
  if (!pixels.ok()) return pixels.status();
  Resample(PartOf(*pixels, crop, divisor), side, crop.mirrored, out);
  return absl::OkStatus();
}

}  // namespace psring
