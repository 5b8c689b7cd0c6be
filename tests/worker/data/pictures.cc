#include "tests/worker/data/pictures.h"

#include <gtest/gtest.h>
#include <png.h>
#include <turbojpeg.h>

#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tests/testing/test_directory.h"

namespace psring::testing {
namespace {

constexpr int kBestQuality = 100;

std::string Compress(const std::vector<uint8_t>& pixels, int width, int height,
                     int pixel_format, int subsampling) {
  const std::unique_ptr<void, int (*)(void*)> handle(tjInitCompress(),
                                                     tjDestroy);
  uint8_t* jpeg = nullptr;
  unsigned long size = 0;
  EXPECT_EQ(
      tjCompress2(handle.get(), pixels.data(), width, /*pitch=*/0, height,
                  pixel_format, &jpeg, &size, subsampling, kBestQuality, 0),
      0)
      << tjGetErrorStr2(handle.get());
  std::string bytes(reinterpret_cast<char*>(jpeg), size);
  tjFree(jpeg);
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
  return Compress(picture.rgb, picture.width, picture.height, TJPF_RGB,
                  TJSAMP_444);
}

std::string GreyJpeg(const Picture& picture) {
  return Compress(picture.rgb, picture.width, picture.height, TJPF_RGB,
                  TJSAMP_GRAY);
}

std::string CmykJpeg(const Picture& picture) {
  std::vector<uint8_t> inks;
  for (size_t i = 0; i < picture.rgb.size(); i += 3) {
    for (int c = 0; c < 3; ++c) inks.push_back(picture.rgb[i + c]);
    inks.push_back(255);
  }
  return Compress(inks, picture.width, picture.height, TJPF_CMYK, TJSAMP_444);
}

std::string Png(const Picture& picture) {
  return WritePng(picture.rgb, picture.width, picture.height, PNG_FORMAT_RGB);
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
