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

// "mnist:DIR" as "mnist" and "DIR".
std::pair<absl::string_view, absl::string_view> Split(absl::string_view spec) {
  return absl::StrSplit(spec, absl::MaxSplits(':', 1));
}

absl::StatusOr<DatasetPair> LoadByName(absl::string_view name,
                                       absl::string_view rest) {
  if (name == "digits") return DrawDigits(*ParseDigitsOptions(rest));
  if (name == "synthetic") return DrawSynthetic(*ParseSyntheticOptions(rest));
  if (name == "images") return LoadImageFolder(*ParseImageFolderOptions(rest));
  const std::string folder(rest);
  return Identified(name == "mnist" ? LoadIdx(folder) : LoadCifar10(folder));
}

}  // namespace

absl::Status CheckDataset(absl::string_view spec) {
  const auto [name, rest] = Split(spec);
  if (name == "digits") return ParseDigitsOptions(rest).status();
  if (name == "synthetic") return ParseSyntheticOptions(rest).status();
  if (name == "images") return ParseImageFolderOptions(rest).status();
  if (name != "mnist" && name != "cifar10") {
    return absl::InvalidArgumentError(absl::StrCat("unknown. Known: ", kKnown));
  }
  return rest.empty() ? absl::InvalidArgumentError(absl::StrCat(
                            "names no folder. Write ", name, ":DIR"))
                      : absl::OkStatus();
}

absl::StatusOr<DatasetPair> LoadDataset(absl::string_view spec) {
  const auto [name, rest] = Split(spec);
  absl::StatusOr<DatasetPair> loaded;
  try {
    if (absl::Status s = CheckDataset(spec); !s.ok()) {
      loaded = s;
    } else {
      loaded = LoadByName(name, rest);
    }
  } catch (const std::bad_alloc&) {
    loaded = absl::ResourceExhaustedError("not enough memory");
  }
  if (loaded.ok()) return loaded;
  return absl::Status(
      loaded.status().code(),
      absl::StrCat("data set '", spec, "': ", loaded.status().message()));
}

}  // namespace psring
