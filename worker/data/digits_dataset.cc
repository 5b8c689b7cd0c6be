#include "worker/data/digits_dataset.h"

#include <limits>
#include <vector>

#include "absl/strings/str_split.h"
#include "common/split_mix.h"
#include "worker/data/dataset_settings.h"
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

}  // namespace

absl::StatusOr<DigitsOptions> ParseDigitsOptions(absl::string_view text) {
  DigitsOptions options;
  if (text.empty()) return options;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ',');
  const DatasetSetting known[] = {
      {"train", "N", 1, kMaxDigits, &options.num_train},
      {"test", "M", 1, kMaxDigits, &options.num_test},
      {"seed", "S", 0, std::numeric_limits<int64_t>::max(), &options.seed},
  };
  absl::Status status = ParseDatasetSettings(parts, known);
  if (!status.ok()) return status;
  return options;
}

DatasetPair DrawDigits(const DigitsOptions& options) {
  return {DrawPart(options.seed, kTrain, options.num_train),
          DrawPart(options.seed, kTest, options.num_test)};
}

}  // namespace psring
