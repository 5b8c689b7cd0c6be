#include "worker/data/load_dataset.h"

#include <zlib.h>

#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "worker/data/cifar10_dataset.h"
#include "worker/data/digits_dataset.h"
#include "worker/data/idx_dataset.h"
#include "worker/data/image_folder.h"
#include "worker/data/synthetic_dataset.h"

namespace psring {
namespace {

constexpr char kKnown[] =
    "mnist:DIR, cifar10:DIR, images:DIR[,size=PIXELS][,augment=no], "
    "digits[:train=N,test=M,seed=S], "
    "synthetic:CxHxW[,classes=K,train=N,test=M]";

template <typename T>
uLong Crc32Of(uLong before, const std::vector<T>& values) {
  return crc32_z(before, reinterpret_cast<const Bytef*>(values.data()),
                 values.size() * sizeof(T));
}

// Files of the same names and sizes may hold other data.
absl::StatusOr<DatasetPair> Identified(absl::StatusOr<DatasetPair> loaded) {
  if (!loaded.ok()) return loaded;
  uLong crc = crc32_z(0, nullptr, 0);
  for (const Dataset* part : {&loaded->train, &loaded->test}) {
    crc = Crc32Of(Crc32Of(crc, part->pixels), part->labels);
  }
  loaded->identity = absl::StrFormat("crc32=%08x", crc);
  return loaded;
}

absl::StatusOr<DatasetPair> LoadByName(absl::string_view name,
                                       absl::string_view rest) {
  if (name == "digits") {
    auto options = ParseDigitsOptions(rest);
    if (!options.ok()) return options.status();
    return DrawDigits(*options);
  }
  if (name == "synthetic") {
    auto options = ParseSyntheticOptions(rest);
    if (!options.ok()) return options.status();
    return DrawSynthetic(*options);
  }
  if (name == "images") {
    const auto options = ParseImageFolderOptions(rest);
    if (!options.ok()) return options.status();
    return LoadImageFolder(*options);
  }
  const bool mnist = name == "mnist";
  if (!mnist && name != "cifar10") {
    return absl::InvalidArgumentError(absl::StrCat("unknown. Known: ", kKnown));
  }
  if (rest.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("names no folder. Write ", name, ":DIR"));
  }
  const std::string folder(rest);
  return Identified(mnist ? LoadIdx(folder) : LoadCifar10(folder));
}

}  // namespace

absl::StatusOr<DatasetPair> LoadDataset(absl::string_view spec) {
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(spec, absl::MaxSplits(':', 1));
  absl::StatusOr<DatasetPair> loaded;
  try {
    loaded = LoadByName(parts.first, parts.second);
  } catch (const std::bad_alloc&) {
    loaded = absl::ResourceExhaustedError("not enough memory");
  }
  if (loaded.ok()) return loaded;
  return absl::Status(
      loaded.status().code(),
      absl::StrCat("data set '", spec, "': ", loaded.status().message()));
}

}  // namespace psring
