#include "worker/data/encoded_image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/worker/data/pictures.h"

namespace psring {
namespace {

using testing::CmykJpeg;
using testing::DeepPng;
using testing::GreyJpeg;
using ::testing::HasSubstr;
using testing::Jpeg;
using testing::Picture;
using testing::Png;
using testing::SampledJpeg;
using testing::Slope;
using testing::TransparentPng;

// [3, side, side].
struct Planes {
  int At(int channel, int x, int y) const {
    return pixels[(channel * side + y) * side + x];
  }

  int side = 0;
  std::vector<uint8_t> pixels;
};

Planes Draw(const std::string& bytes, const ImageCrop& crop, int side) {
  Planes planes = {side, std::vector<uint8_t>(3 * side * side)};
  auto image = EncodedImage::Parse(bytes);
  EXPECT_TRUE(image.ok()) << image.status();
  const absl::Status drawn =
      image->Draw(crop, side, absl::MakeSpan(planes.pixels));
  EXPECT_TRUE(drawn.ok()) << drawn;
  return planes;
}

// That a Slope's part is shown, to half a pixel of `planes` and `tolerance`
// levels.
void ExpectSlope(const Planes& planes, const Picture& from,
                 const ImageCrop& crop, int tolerance) {
  const double red_step = 255.0 / (from.width - 1);
  const double green_step = 255.0 / (from.height - 1);
  const double half_across = 0.5 * crop.width / planes.side * red_step;
  const double half_down = 0.5 * crop.height / planes.side * green_step;
  for (int y = 0; y < planes.side; ++y) {
    for (int x = 0; x < planes.side; ++x) {
      const int shown = crop.mirrored ? planes.side - 1 - x : x;
      const double across =
          crop.left + (shown + 0.5) * crop.width / planes.side - 0.5;
      const double down =
          crop.top + (y + 0.5) * crop.height / planes.side - 0.5;
      ASSERT_NEAR(planes.At(0, x, y), across * red_step,
                  half_across + tolerance)
          << x << " " << y;
      ASSERT_NEAR(planes.At(1, x, y), down * green_step, half_down + tolerance)
          << x << " " << y;
      ASSERT_NEAR(planes.At(2, x, y), 128, tolerance) << x << " " << y;
    }
  }
}

TEST(EncodedImage, KnowsItsSize) {
  for (const std::string& bytes : {Jpeg(Slope(61, 37)), Png(Slope(61, 37))}) {
    auto image = EncodedImage::Parse(bytes);
    ASSERT_TRUE(image.ok()) << image.status();
    EXPECT_EQ(image->width(), 61);
    EXPECT_EQ(image->height(), 37);
  }
}

TEST(EncodedImage, DrawsAPngAsItIs) {
  const Picture picture = Slope(32, 32);
  const Planes planes = Draw(Png(picture), {0, 0, 32, 32}, 32);
  for (int c = 0; c < 3; ++c) {
    for (int y = 0; y < 32; ++y) {
      for (int x = 0; x < 32; ++x) {
        ASSERT_EQ(planes.At(c, x, y), picture.rgb[(y * 32 + x) * 3 + c]);
      }
    }
  }
}

TEST(EncodedImage, DrawsThePartAskedForInTheSizeAskedFor) {
  const Picture picture = Slope(400, 300);
  const ImageCrop crops[] = {{0, 0, 400, 300},
                             {200, 150, 200, 150},
                             {31, 17, 300, 100, true},
                             {380, 280, 20, 20},
                             {3, 5, 64, 64, true}};
  for (const std::string& bytes : {Jpeg(picture), Png(picture)}) {
    for (const ImageCrop& crop : crops) {
      for (const int side : {16, 32, 64, 150}) {
        SCOPED_TRACE(::testing::Message()
                     << bytes.substr(1, 3) << " " << crop.left << "+"
                     << crop.width << " to " << side);
        ExpectSlope(Draw(bytes, crop, side), picture, crop, 5);
      }
    }
  }
}

TEST(EncodedImage, AveragesWhatOnePixelStandsFor) {
  Picture chessboard = {512, 512, {}};
  for (int y = 0; y < 512; ++y) {
    for (int x = 0; x < 512; ++x) {
      chessboard.rgb.insert(chessboard.rgb.end(), 3,
                            (x + y) % 2 == 0 ? 255 : 0);
    }
  }
  for (const std::string& bytes : {Jpeg(chessboard), Png(chessboard)}) {
    const Planes planes = Draw(bytes, {0, 0, 512, 512}, 20);
    for (const uint8_t level : planes.pixels) ASSERT_NEAR(level, 128, 3);
  }
}

TEST(EncodedImage, MakesThreeChannelsOfGreyAndOfFourInks) {
  const Picture picture = Slope(64, 64);
  const Planes grey = Draw(GreyJpeg(picture), {0, 0, 64, 64}, 64);
  for (int x = 0; x < 64; x += 9) {
    // Its luminance, ITU-R BT.601.
    const double wanted = 0.299 * (x * 255 / 63) + 0.114 * 128;
    for (int c = 0; c < 3; ++c) EXPECT_NEAR(grey.At(c, x, 0), wanted, 2);
  }
  ExpectSlope(Draw(CmykJpeg(picture), {0, 0, 64, 64}, 64), picture,
              {0, 0, 64, 64}, 5);
}

TEST(EncodedImage, IgnoresTransparency) {
  const Picture picture = Slope(16, 16);
  EXPECT_EQ(Draw(TransparentPng(picture), {0, 0, 16, 16}, 16).pixels,
            Draw(Png(picture), {0, 0, 16, 16}, 16).pixels);
}

TEST(EncodedImage, ReadsSixteenBitsAChannel) {
  const Picture picture = Slope(16, 16);
  EXPECT_EQ(Draw(DeepPng(picture), {0, 0, 16, 16}, 16).pixels,
            Draw(Png(picture), {0, 0, 16, 16}, 16).pixels);
}

TEST(EncodedImage, ReadsAnySamplingOfColour) {
  const Picture picture = Slope(64, 64);
  for (const int across : {1, 2, 4}) {
    for (const int down : {1, 2, 4}) {
      if (across * down > 8) continue;  // more than a JPEG may have
      SCOPED_TRACE(::testing::Message() << across << "x" << down);
      ExpectSlope(Draw(SampledJpeg(picture, across, down), {0, 0, 64, 64}, 16),
                  picture, {0, 0, 64, 64}, 20);
    }
  }
}

// Where a marker segment ends that lies before the tables.
size_t EndOfFirstSegment(const std::string& jpeg) {
  return 4 + static_cast<uint8_t>(jpeg[4]) * 256 +
         static_cast<uint8_t>(jpeg[5]);
}

TEST(EncodedImage, LivesWithStrayBytesInAJpeg) {
  const std::string bytes = Jpeg(Slope(64, 64));
  const auto wanted = Draw(bytes, {0, 0, 64, 64}, 64).pixels;
  EXPECT_EQ(Draw(bytes + "and more", {0, 0, 64, 64}, 64).pixels, wanted);
  std::string stray = bytes;
  stray.insert(EndOfFirstSegment(bytes), "abc");
  EXPECT_EQ(Draw(stray, {0, 0, 64, 64}, 64).pixels, wanted);
}

// What Parse says, or if it finds nothing what Draw says.
absl::Status StatusOf(const std::string& bytes) {
  auto image = EncodedImage::Parse(bytes);
  if (!image.ok()) return image.status();
  std::vector<uint8_t> out(3 * 16 * 16);
  return image->Draw(CentralCrop(image->width(), image->height()), 16,
                     absl::MakeSpan(out));
}

TEST(EncodedImage, SaysThatAFileIsCutShort) {
  for (const std::string& bytes : {Jpeg(Slope(99, 99)), Png(Slope(99, 99))}) {
    for (const size_t left :
         {size_t{0}, size_t{2}, size_t{30}, bytes.size() / 2}) {
      EXPECT_EQ(StatusOf(bytes.substr(0, left)).code(),
                absl::StatusCode::kDataLoss)
          << left;
    }
  }
}

// The decoder remembers its first warning, which is of no harm here.
TEST(EncodedImage, SaysThatAFileWithStrayBytesIsCutShort) {
  std::string bytes = Jpeg(Slope(99, 99));
  bytes.insert(EndOfFirstSegment(bytes), "abc");
  EXPECT_THAT(
      std::string(StatusOf(bytes.substr(0, bytes.size() / 2)).message()),
      HasSubstr("damaged: "));
}

TEST(EncodedImage, SaysThatAFileIsNoPicture) {
  EXPECT_THAT(std::string(StatusOf("<html>404</html>").message()),
              HasSubstr("neither JPEG nor PNG"));
}

TEST(EncodedImage, RefusesAPictureThatClaimsToBeHuge) {
  // Width and height of a PNG lie behind the signature and the chunk's head.
  std::string bytes = Png(Slope(99, 99));
  bytes.replace(16, 8, std::string("\0\x0f\0\0\0\x0f\0\0", 8));
  EXPECT_FALSE(EncodedImage::Parse(bytes).ok());
  // Those of a JPEG, height first, in its frame header.
  bytes = Jpeg(Slope(99, 99));
  const size_t frame = bytes.find("\xff\xc0");
  ASSERT_NE(frame, std::string::npos);
  bytes.replace(frame + 5, 4, "\x7f\xff\x7f\xff");
  EXPECT_THAT(std::string(EncodedImage::Parse(bytes).status().message()),
              HasSubstr("32767x32767 pixels"));
}

}  // namespace
}  // namespace psring
