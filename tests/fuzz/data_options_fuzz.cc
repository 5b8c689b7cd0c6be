// The options of data sets, as --data has them: worker/data/.
#include <cstdint>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/fuzz/fuzz.h"
#include "worker/data/digits_dataset.h"
#include "worker/data/image_folder.h"
#include "worker/data/synthetic_dataset.h"

namespace psring::fuzz {
namespace {

void Digits(const std::string& text) {
  const auto options = ParseDigitsOptions(text);
  if (!options.ok()) return RequireReason(options.status());
  for (const int64_t count : {options->num_train, options->num_test}) {
    Require(count >= 1 && count <= kMaxDigits,
            "there are digits, not too many");
  }
  const auto again = ParseDigitsOptions(
      absl::StrCat("test=", options->num_test, ",train=", options->num_train,
                   ",seed=", options->seed));
  Require(again.ok() && again->num_train == options->num_train &&
              again->num_test == options->num_test &&
              again->seed == options->seed,
          "what was read can be written and read again");
}

void Synthetic(const std::string& text) {
  const auto options = ParseSyntheticOptions(text);
  if (!options.ok()) return RequireReason(options.status());
  const ImageShape& shape = options->shape;
  for (const int64_t count :
       {shape.channels, shape.height, shape.width, shape.num_classes,
        options->num_train, options->num_test}) {
    Require(count >= 1, "a data set has something of everything");
  }
  int64_t bytes = 0;
  Require(
      !__builtin_mul_overflow(shape.channels * shape.height * shape.width,
                              options->num_train + options->num_test, &bytes) &&
          bytes <= int64_t{1} << 40,
      "at most a terabyte");
  const auto again = ParseSyntheticOptions(
      absl::StrCat(shape.channels, "x", shape.height, "x", shape.width,
                   ",classes=", shape.num_classes,
                   ",train=", options->num_train, ",test=", options->num_test));
  Require(again.ok() && again->shape.channels == shape.channels &&
              again->shape.height == shape.height &&
              again->shape.width == shape.width &&
              again->shape.num_classes == shape.num_classes &&
              again->num_train == options->num_train &&
              again->num_test == options->num_test,
          "what was read can be written and read again");
}

void Images(const std::string& text) {
  const auto options = ParseImageFolderOptions(text);
  if (!options.ok()) return RequireReason(options.status());
  Require(!options->folder.empty() && absl::StartsWith(text, options->folder),
          "the folder is what comes first");
  Require(options->side >= 1, "a picture has pixels");
  const auto again = ParseImageFolderOptions(
      absl::StrCat(options->folder, ",size=", options->side,
                   options->augment ? "" : ",augment=no"));
  Require(again.ok() && again->folder == options->folder &&
              again->side == options->side &&
              again->augment == options->augment,
          "what was read can be written and read again");
}

}  // namespace

std::vector<std::string> Seeds() {
  return {
      Input().Byte(0).Rest("train=8000,test=2000,seed=7").bytes(),
      Input().Byte(0).bytes(),
      Input().Byte(1).Rest("3x224x224,classes=1000,train=64,test=8").bytes(),
      Input().Byte(1).Rest("1x28x28").bytes(),
      Input().Byte(2).Rest("/data/a,b,size=64,augment=no").bytes(),
      Input().Byte(2).Rest("pictures").bytes(),
  };
}

}  // namespace psring::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace psring;
  fuzz::Bytes input(data, size);
  switch (input.Below(3)) {
    case 0:
      fuzz::Digits(input.Rest());
      break;
    case 1:
      fuzz::Synthetic(input.Rest());
      break;
    default:
      fuzz::Images(input.Rest());
  }
  return 0;
}
