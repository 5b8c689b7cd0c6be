// worker/data/encoded_image.h: pictures in JPEG and PNG. Real ones are in the
// corpus.
#include <zlib.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/split_mix.h"
#include "tests/fuzz/fuzz.h"
#include "worker/data/encoded_image.h"
#include "worker/data/image_crop.h"

namespace psring::fuzz {
namespace {

constexpr int kMostSide = 40;
constexpr int kSealed = 120;              // from which first byte on
constexpr int64_t kMostPixels = 1 << 20;  // that are decoded here

// A PNG is a signature and chunks: a length, a type, data, and the CRC of the
// last two. Puts the right CRCs into it, which no search would find, as whoever
// makes one up would.
std::string Sealed(std::string png) {
  constexpr size_t kSignature = 8, kNumber = 4;
  const auto at = [&](size_t i) { return static_cast<uint8_t>(png[i]); };
  for (size_t begin = kSignature; begin + 3 * kNumber <= png.size();) {
    const uint64_t length = uint64_t{at(begin)} << 24 | at(begin + 1) << 16 |
                            at(begin + 2) << 8 | at(begin + 3);
    const size_t end = begin + 2 * kNumber + length;
    if (end + kNumber > png.size()) break;
    const auto* const type =
        reinterpret_cast<const Bytef*>(png.data() + begin + kNumber);
    const uint64_t crc = crc32(0, type, static_cast<uInt>(kNumber + length));
    for (size_t i = 0; i < kNumber; ++i) {
      png[end + i] = static_cast<char>(crc >> (24 - 8 * i));
    }
    begin = end + kNumber;
  }
  return png;
}

void Check(Bytes& input) {
  const int first = input.Byte();
  const int side = 1 + first % kMostSide;
  const bool sealed = first >= kSealed;
  const uint64_t seed = input.Number(2);
  std::string bytes = input.Rest();
  auto image =
      EncodedImage::Parse(sealed ? Sealed(std::move(bytes)) : std::move(bytes));
  if (!image.ok()) return RequireReason(image.status());
  Require(image->width() > 0 && image->height() > 0, "a picture has pixels");
  const int64_t pixels = int64_t{image->width()} * image->height();
  Require(pixels <= EncodedImage::kMostPixels, "large pictures are refused");
  if (pixels > kMostPixels) return;
  SplitMix64 random(seed);
  std::vector<uint8_t> out(3 * side * side);
  const absl::Status drawn =
      image->Draw(RandomCrop(image->width(), image->height(), random), side,
                  absl::MakeSpan(out));
  if (!drawn.ok()) RequireReason(drawn);
}

}  // namespace

std::vector<std::string> Seeds() {
  return {
      Input().Byte(7).Number(1, 2).Rest("neither").bytes(),
      Input().Byte(7).Number(1, 2).Rest("\xff\xd8\xff").bytes(),
      Input().Byte(7).Number(1, 2).Rest("\x89PNG\r\n\x1a\n").bytes(),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  psring::fuzz::Bytes input(data, size);
  psring::fuzz::Check(input);
  return 0;
}
