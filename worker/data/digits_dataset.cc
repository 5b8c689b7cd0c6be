#include "worker/data/digits_dataset.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/split_mix.h"
#include "worker/data/digit_image.h"

namespace psring {
namespace {

constexpr int kClasses = 10;
// Of the 8,000 training digits of seed 0.
constexpr double kMean = 0.1574, kStddev = 0.3086;

// The keys of SplitMix64::Fork.
enum Part { kTrain = 0, kTest = 1 };

Dataset DrawPart(uint64_t seed, Part part, int64_t count) {
  const SplitMix64 random = SplitMix64(seed).Fork(part);
  const DigitPen pen;
  Dataset dataset;
  dataset.pixels.resize(count * kDigitPixels);
  dataset.labels.resize(count);
  const absl::Span<uint8_t> pixels = absl::MakeSpan(dataset.pixels);
  for (int64_t i = 0; i < count; ++i) {
    SplitMix64 of_sample = random.Fork(i);
    dataset.labels[i] = of_sample.Below(kClasses);
    pen.Draw(static_cast<int>(dataset.labels[i]), of_sample,
             pixels.subspan(i * kDigitPixels, kDigitPixels));
  }
  dataset.shape = {1, kDigitSide, kDigitSide, kClasses};
  dataset.mean = {kMean};
  dataset.stddev = {kStddev};
  return dataset;
}

absl::Status ParseCount(absl::string_view part, absl::string_view value,
                        int64_t& count) {
  if (absl::SimpleAtoi(value, &count) && count >= 1 && count <= kMaxDigits) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", part, "': expected a number from 1 to ", kMaxDigits));
}

absl::Status ParsePart(absl::string_view part, DigitsOptions& options) {
  const std::pair<absl::string_view, absl::string_view> pair =
      absl::StrSplit(part, absl::MaxSplits('=', 1));
  const auto [key, value] = pair;
  if (key == "train") return ParseCount(part, value, options.num_train);
  if (key == "test") return ParseCount(part, value, options.num_test);
  if (key != "seed") {
    return absl::InvalidArgumentError(
        absl::StrCat("'", part, "' is none of train=N, test=M, seed=S"));
  }
  if (absl::SimpleAtoi(value, &options.seed)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("'", part, "': expected a number from 0"));
}

}  // namespace

absl::StatusOr<DigitsOptions> ParseDigitsOptions(absl::string_view text) {
  DigitsOptions options;
  if (text.empty()) return options;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    absl::Status status = ParsePart(part, options);
    if (!status.ok()) return status;
  }
  return options;
}

DatasetPair DrawDigits(const DigitsOptions& options) {
  return {DrawPart(options.seed, kTrain, options.num_train),
          DrawPart(options.seed, kTest, options.num_test)};
}

}  // namespace psring
