// worker/data/encoded_image.h: pictures in JPEG and PNG. Real ones are in the
// corpus.
#include <vector>

#include "absl/types/span.h"
#include "common/split_mix.h"
#include "tests/fuzz/fuzz.h"
#include "worker/data/encoded_image.h"
#include "worker/data/image_crop.h"

namespace psring::fuzz {
namespace {

constexpr int kMostSide = 40;
constexpr int64_t kMostPixels = 1 << 20;  // that are decoded here

void Check(Bytes& input) {
  const int side = 1 + input.Below(kMostSide);
  const uint64_t seed = input.Number(2);
  auto image = EncodedImage::Parse(input.Rest());
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
