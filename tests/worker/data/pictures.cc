#include "tests/worker/data/pictures.h"

#include <gtest/gtest.h>

// jpeglib.h takes stdio.h for granted.
// clang-format off
#include <stdio.h>
#include <jpeglib.h>
// clang-format on
#include <png.h>

#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/testing/test_directory.h"

namespace psring::testing {
namespace {

constexpr int kBestQuality = 100;

struct JpegOptions {
  J_COLOR_SPACE in = JCS_RGB;
  J_COLOR_SPACE out = JCS_YCbCr;
  int across = 1;  // luminance's samples for one of chrominance
  int down = 1;
};

std::string Compress(const std::vector<uint8_t>& pixels, int width, int height,
                     const JpegOptions& options) {
  jpeg_compress_struct jpeg = {};
  jpeg_error_mgr errors = {};
  jpeg.err = jpeg_std_error(&errors);
  jpeg_create_compress(&jpeg);
  uint8_t* data = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&jpeg, &data, &size);
  jpeg.image_width = width;
  jpeg.image_height = height;
  jpeg.in_color_space = options.in;
  jpeg.input_components = static_cast<int>(pixels.size()) / (width * height);
  jpeg_set_defaults(&jpeg);
  jpeg_set_colorspace(&jpeg, options.out);
  jpeg_set_quality(&jpeg, kBestQuality, /*force_baseline=*/TRUE);
  jpeg.comp_info[0].h_samp_factor = options.across;
  jpeg.comp_info[0].v_samp_factor = options.down;
  jpeg_start_compress(&jpeg, /*write_all_tables=*/TRUE);
  while (jpeg.next_scanline < jpeg.image_height) {
    auto* row = const_cast<uint8_t*>(pixels.data() +
                                     static_cast<size_t>(jpeg.next_scanline) *
                                         width * jpeg.input_components);
    jpeg_write_scanlines(&jpeg, &row, 1);
  }
  jpeg_finish_compress(&jpeg);
  jpeg_destroy_compress(&jpeg);
  std::string bytes(reinterpret_cast<char*>(data), size);
  free(data);
  return bytes;
}

std::string WritePng(const std::vector<uint8_t>& pixels, int width, int height,
                     png_uint_32 format) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = format;
  png_alloc_size_t size = 0;
  EXPECT_TRUE(png_image_write_get_memory_size(image, size, 0, pixels.data(), 0,
                                              nullptr));
  std::string bytes(size, '\0');
  EXPECT_TRUE(png_image_write_to_memory(&image, bytes.data(), &size, 0,
                                        pixels.data(), 0, nullptr))
      << image.message;
  bytes.resize(size);
  return bytes;
}

// One half bright, the other dark.
Picture HalfBright(int width, int height, bool top) {
  Picture picture = {width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const bool bright = (y < height / 2) == top;
      picture.rgb.insert(picture.rgb.end(), 3, bright ? 220 : 30);
    }
  }
  return picture;
}

void WriteClass(const std::string& folder, int count, bool top) {
  std::filesystem::create_directories(folder);
  for (int i = 0; i < count; ++i) {
    const Picture picture = HalfBright(20 + i % 7, 20 + i % 5, top);
    const bool jpeg = i % 2 == 0;
    WriteFile(absl::StrCat(folder, "/", i, jpeg ? ".JPEG" : ".png"),
              jpeg ? Jpeg(picture) : Png(picture));
  }
}

}  // namespace

Picture Slope(int width, int height, int blue) {
  Picture picture = {width, height, {}};
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      picture.rgb.push_back(x * 255 / (width - 1));
      picture.rgb.push_back(y * 255 / (height - 1));
      picture.rgb.push_back(blue);
    }
  }
  return picture;
}

std::string Jpeg(const Picture& picture) {
  return Compress(picture.rgb, picture.width, picture.height, {});
}

std::string SampledJpeg(const Picture& picture, int across, int down) {
  return Compress(picture.rgb, picture.width, picture.height,
                  {.across = across, .down = down});
}

std::string GreyJpeg(const Picture& picture) {
  return Compress(picture.rgb, picture.width, picture.height,
                  {.out = JCS_GRAYSCALE});
}

std::string CmykJpeg(const Picture& picture) {
  std::vector<uint8_t> inks;
  for (size_t i = 0; i < picture.rgb.size(); i += 3) {
    for (int c = 0; c < 3; ++c) inks.push_back(picture.rgb[i + c]);
    inks.push_back(255);
  }
  return Compress(inks, picture.width, picture.height,
                  {.in = JCS_CMYK, .out = JCS_CMYK});
}

std::string Png(const Picture& picture) {
  return WritePng(picture.rgb, picture.width, picture.height, PNG_FORMAT_RGB);
}

std::string DeepPng(const Picture& picture) {
  std::vector<uint16_t> levels;
  for (const uint8_t level : picture.rgb) levels.push_back(level * 257);
  std::string bytes;
  const auto write = [](png_structp png, png_bytep data, size_t size) {
    static_cast<std::string*>(png_get_io_ptr(png))
        ->append(reinterpret_cast<char*>(data), size);
  };
  png_structp png =
      png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(png);
  png_set_write_fn(png, &bytes, write, nullptr);
  png_set_IHDR(png, info, picture.width, picture.height, 16, PNG_COLOR_TYPE_RGB,
               PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
               PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  png_set_swap(png);
  for (int y = 0; y < picture.height; ++y) {
    png_write_row(png, reinterpret_cast<png_bytep>(levels.data() +
                                                   y * picture.width * 3));
  }
  png_write_end(png, nullptr);
  png_destroy_write_struct(&png, &info);
  return bytes;
}

std::string TransparentPng(const Picture& picture) {
  std::vector<uint8_t> rgba;
  for (size_t i = 0; i < picture.rgb.size(); i += 3) {
    for (int c = 0; c < 3; ++c) rgba.push_back(picture.rgb[i + c]);
    rgba.push_back(40);
  }
  return WritePng(rgba, picture.width, picture.height, PNG_FORMAT_RGBA);
}

void WriteTinyImageFolder(const std::string& folder, int train, int val) {
  for (const bool top : {false, true}) {
    const std::string name = top ? "top" : "bottom";
    WriteClass(absl::StrCat(folder, "/train/", name), train, top);
    WriteClass(absl::StrCat(folder, "/val/", name), val, top);
  }
}

}  // namespace psring::testing
