#include "worker/data/synthetic_dataset.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/split_mix.h"
#include "worker/data/dataset_settings.h"

namespace psring {
namespace {

constexpr int64_t kMostSide = 4096;
constexpr int64_t kMostClasses = 1'000'000;
constexpr int64_t kMostSamples = 100'000'000;
constexpr int64_t kMostBytes = int64_t{1} << 40;

absl::Status ParseShape(absl::string_view part, ImageShape& shape) {
  const std::vector<absl::string_view> sides = absl::StrSplit(part, 'x');
  if (sides.size() != 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", part, "' is no shape: write CHANNELSxHEIGHTxWIDTH, 3x224x224"));
  }
  int64_t* const values[] = {&shape.channels, &shape.height, &shape.width};
  for (int i = 0; i < 3; ++i) {
    absl::Status status =
        ParseDatasetNumber(part, sides[i], 1, kMostSide, *values[i]);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

Dataset DrawPart(const SyntheticOptions& options, uint64_t seed,
                 int64_t count) {
  SplitMix64 random(seed);
  Dataset dataset;
  dataset.shape = options.shape;
  dataset.mean.assign(options.shape.channels, 0.5);
  dataset.stddev.assign(options.shape.channels, 0.29);  // of even chances
  dataset.pixels.resize(count * dataset.pixels_per_image());
  for (size_t i = 0; i < dataset.pixels.size(); i += sizeof(uint64_t)) {
    const uint64_t word = random.Next();
    std::memcpy(dataset.pixels.data() + i, &word,
                std::min(sizeof(word), dataset.pixels.size() - i));
  }
  dataset.labels.resize(count);
  for (int64_t& label : dataset.labels) {
    label = random.Below(options.shape.num_classes);
  }
  return dataset;
}

}  // namespace

absl::StatusOr<SyntheticOptions> ParseSyntheticOptions(absl::string_view text) {
  SyntheticOptions options;
  const std::string given(text);  // what is split must not be null
  const std::vector<absl::string_view> parts = absl::StrSplit(given, ',');
  absl::Status status = ParseShape(parts[0], options.shape);
  if (!status.ok()) return status;
  const DatasetSetting known[] = {
      {"classes", "C", 1, kMostClasses, &options.shape.num_classes},
      {"train", "N", 1, kMostSamples, &options.num_train},
      {"test", "M", 1, kMostSamples, &options.num_test},
  };
  status = ParseDatasetSettings(absl::MakeSpan(parts).subspan(1), known);
  if (!status.ok()) return status;
  const ImageShape& shape = options.shape;
  const int64_t image = shape.channels * shape.height * shape.width;
  if (options.num_train + options.num_test > kMostBytes / image) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.num_train + options.num_test, " images of ", image,
                     " bytes: more than a terabyte. A smaller train=N"));
  }
  return options;
}

DatasetPair DrawSynthetic(const SyntheticOptions& options) {
  return {DrawPart(options, 1, options.num_train),
          DrawPart(options, 2, options.num_test)};
}

}  // namespace psring
