#include "worker/models/mlp.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "worker/models/layers.h"

namespace psring {
namespace {

// Of one layer: two such layers in a row would need 64 TiB.
constexpr int64_t kMaxSize = 1 << 22;

class Mlp : public Classifier {
 public:
  explicit Mlp(const std::vector<int64_t>& sizes) {
    for (size_t i = 1; i < sizes.size(); ++i) {
      AddModule(absl::StrCat("fc", i),
                layers_.emplace_back(sizes[i - 1], sizes[i]));
    }
  }

  at::Tensor Forward(at::Tensor x) override {
    x = x.flatten(1);
    for (size_t i = 0; i < layers_.size(); ++i) {
      if (i > 0) x = x.relu();
      x = layers_[i](x);
    }
    return LogProbabilities(x);
  }

 private:
  std::vector<Linear> layers_;
};

absl::StatusOr<std::vector<int64_t>> ParseSizes(absl::string_view text) {
  std::vector<int64_t> sizes;
  for (absl::string_view part : absl::StrSplit(text, '-')) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 1 || size > kMaxSize) {
      return absl::InvalidArgumentError(absl::StrCat(
          "size ", sizes.size() + 1, " is '", part, "', expected 1 to ",
          kMaxSize, ". Write e.g. mlp:784-2048-2048-10"));
    }
    sizes.push_back(size);
  }
  if (sizes.size() >= 2) return sizes;
  return absl::InvalidArgumentError(
      "needs its sizes, two or more: the values of an image, any hidden "
      "layers, the classes. Write e.g. mlp:784-2048-2048-10");
}

absl::Status CheckEnds(const std::vector<int64_t>& sizes,
                       const ImageShape& shape) {
  const int64_t values = shape.channels * shape.height * shape.width;
  if (sizes.front() != values) {
    return absl::InvalidArgumentError(absl::StrCat(
        "takes ", sizes.front(), " values, but an image of ", shape.channels,
        "x", shape.height, "x", shape.width, " has ", values));
  }
  if (sizes.back() == shape.num_classes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("ends in ", sizes.back(),
                                                 " classes, but the data has ",
                                                 shape.num_classes));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Classifier>> CreateMlp(absl::string_view sizes,
                                                      const ImageShape& shape) {
  auto parsed = ParseSizes(sizes);
  if (!parsed.ok()) return parsed.status();
  absl::Status ends = CheckEnds(*parsed, shape);
  if (!ends.ok()) return ends;
  return std::make_unique<Mlp>(*parsed);
}

}  // namespace psring
