#include "worker/data/encoded_image.h"

// jpeglib.h takes stdio.h for granted.
// clang-format off
#include <stdio.h>
#include <jpeglib.h>
#include <jerror.h>
// clang-format on
#include <png.h>
#include <setjmp.h>

#include <algorithm>
#include <cstddef>
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

}  // namespace

class ImageDecoder {
 public:
  explicit ImageDecoder(std::string bytes) : bytes_(std::move(bytes)) {}
  virtual ~ImageDecoder() = default;

  // Finds width and height; the first call.
  virtual absl::Status ReadHeader() = 0;
  // One pixel for `divisor` squared: 1, 2, 4 or 8; 1 where it cannot divide.
  virtual absl::StatusOr<Pixels> Decode(int divisor) = 0;
  virtual bool CanDivide() const = 0;

  int64_t width() const { return width_; }
  int64_t height() const { return height_; }

 protected:
  const std::string bytes_;
  int64_t width_ = 0;
  int64_t height_ = 0;
};

namespace {

// What libjpeg calls about errors. They leave it by longjmp, which runs no
// destructors: nothing between setjmp and its calls has any.
struct JpegErrors {
  jpeg_error_mgr manager;  // the first: libjpeg knows it by its address
  jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

void GiveUp(j_common_ptr common) {
  auto* const errors = reinterpret_cast<JpegErrors*>(common->err);
  errors->manager.format_message(common, errors->message);
  longjmp(errors->jump, 1);
}

// Stray bytes and the like are common, and harm nothing; pixels that are not in
// the file do.
void OnMessage(j_common_ptr common, int level) {
  if (level >= 0) return;  // no warning
  switch (common->err->msg_code) {
    case JWRN_JPEG_EOF:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_MUST_RESYNC:
      GiveUp(common);
  }
}

class Jpeg : public ImageDecoder {
 public:
  explicit Jpeg(std::string bytes) : ImageDecoder(std::move(bytes)) {
    jpeg_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = GiveUp;
    errors_.manager.emit_message = OnMessage;
  }
  ~Jpeg() override { jpeg_destroy_decompress(&jpeg_); }
  Jpeg(const Jpeg&) = delete;
  Jpeg& operator=(const Jpeg&) = delete;

  absl::Status ReadHeader() override {
    if (!TryReadHeader()) return Damaged(errors_.message);
    width_ = jpeg_.image_width;
    height_ = jpeg_.image_height;
    return absl::OkStatus();
  }

  bool CanDivide() const override { return true; }

  absl::StatusOr<Pixels> Decode(int divisor) override {
    const bool four_inks = jpeg_.jpeg_color_space == JCS_CMYK ||
                           jpeg_.jpeg_color_space == JCS_YCCK;
    jpeg_.out_color_space = four_inks ? JCS_CMYK : JCS_EXT_RGBX;
    jpeg_.scale_denom = divisor;
    if (!TryFindSize()) return Damaged(errors_.message);
    Pixels pixels(static_cast<int>(jpeg_.output_width),
                  static_cast<int>(jpeg_.output_height));
    if (!TryDecode(pixels.bytes.get(), pixels.stride())) {
      return Damaged(errors_.message);
    }
    if (four_inks) MixInks(pixels);
    return pixels;
  }

 private:
  bool TryReadHeader() {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_decompress(&jpeg_);
    jpeg_mem_src(&jpeg_, BytesOf(bytes_), bytes_.size());
    jpeg_read_header(&jpeg_, /*require_image=*/TRUE);
    return true;
  }

  bool TryFindSize() {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_calc_output_dimensions(&jpeg_);
    return true;
  }

  bool TryDecode(uint8_t* bytes, int stride) {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_start_decompress(&jpeg_);
    while (jpeg_.output_scanline < jpeg_.output_height) {
      JSAMPROW row =
          bytes + static_cast<ptrdiff_t>(jpeg_.output_scanline) * stride;
      jpeg_read_scanlines(&jpeg_, &row, 1);
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
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

  JpegErrors errors_ = {};
  jpeg_decompress_struct jpeg_ = {};
};

class Png : public ImageDecoder {
 public:
  explicit Png(std::string bytes) : ImageDecoder(std::move(bytes)) {
    image_.version = PNG_IMAGE_VERSION;
  }
  ~Png() override { png_image_free(&image_); }
  Png(const Png&) = delete;
  Png& operator=(const Png&) = delete;

  absl::Status ReadHeader() override {
    png_image_begin_read_from_memory(&image_, bytes_.data(), bytes_.size());
    if (PNG_IMAGE_FAILED(image_)) return Damaged(image_.message);
    // Else those that do not say otherwise would be taken for linear.
    image_.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
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
  png_image image_ = {};
};

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

EncodedImage::EncodedImage(std::unique_ptr<ImageDecoder> decoder)
    : decoder_(std::move(decoder)) {}
EncodedImage::EncodedImage(EncodedImage&&) noexcept = default;
EncodedImage::~EncodedImage() = default;

absl::StatusOr<EncodedImage> EncodedImage::Parse(std::string bytes) {
  std::unique_ptr<ImageDecoder> decoder;
  if (absl::StartsWith(bytes, "\xff\xd8\xff")) {
    decoder = std::make_unique<Jpeg>(std::move(bytes));
  } else if (absl::StartsWith(bytes, "\x89PNG\r\n\x1a\n")) {
    decoder = std::make_unique<Png>(std::move(bytes));
  } else {
    return absl::DataLossError("neither JPEG nor PNG");
  }
  if (absl::Status s = decoder->ReadHeader(); !s.ok()) return s;
  if (absl::Status s = CheckSize(decoder->width(), decoder->height());
      !s.ok()) {
    return s;
  }
  return EncodedImage(std::move(decoder));
}

int EncodedImage::width() const { return static_cast<int>(decoder_->width()); }
int EncodedImage::height() const {
  return static_cast<int>(decoder_->height());
}

absl::Status EncodedImage::Draw(const ImageCrop& crop, int side,
                                absl::Span<uint8_t> out) {
  const int divisor = decoder_->CanDivide() ? DivisorOf(crop, side) : 1;
  const auto pixels = decoder_->Decode(divisor);
  if (!pixels.ok()) return pixels.status();
  Resample(PartOf(*pixels, crop, divisor), side, crop.mirrored, out);
  return absl::OkStatus();
}

}  // namespace psring
