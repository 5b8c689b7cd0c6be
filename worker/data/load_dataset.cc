#include "worker/data/load_dataset.h"

#include <zlib.h>

#include <algorithm>
#include <iterator>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "worker/data/cifar10_dataset.h"
#include "worker/data/digits_dataset.h"
#include "worker/data/idx_dataset.h"
#include "worker/data/image_folder.h"
#include "worker/data/synthetic_dataset.h"

namespace psring {
namespace {

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

absl::Status CheckFolder(absl::string_view folder) {
  return folder.empty() ? absl::InvalidArgumentError("names no folder")
                        : absl::OkStatus();
}

struct KnownDataset {
  const char* name;
  const char* usage;  // what follows the name
  // INVALID_ARGUMENT: not with that; looks at no file. Load may rely on it.
  absl::Status (*check)(absl::string_view rest);
  absl::StatusOr<DatasetPair> (*load)(absl::string_view rest);
  // The folder that `rest` begins with; null: it names none.
  absl::string_view (*folder)(absl::string_view rest);
};

// A new data set is a row of this table.
constexpr KnownDataset kKnown[] = {
    {"mnist", ":DIR", CheckFolder,
     [](absl::string_view rest) {
       return Identified(LoadIdx(std::string(rest)));
     },
     [](absl::string_view rest) { return rest; }},
    {"cifar10", ":DIR", CheckFolder,
     [](absl::string_view rest) {
       return Identified(LoadCifar10(std::string(rest)));
     },
     [](absl::string_view rest) { return rest; }},
    {"images", ":DIR[,size=PIXELS][,augment=no]",
     [](absl::string_view rest) {
       return ParseImageFolderOptions(rest).status();
     },
     [](absl::string_view rest) {
       return LoadImageFolder(*ParseImageFolderOptions(rest));
     },
     [](absl::string_view rest) {
       const auto options = ParseImageFolderOptions(rest);
       return rest.substr(0, options.ok() ? options->folder.size() : 0);
     }},
    {"digits", "[:train=N,test=M,seed=S]",
     [](absl::string_view rest) { return ParseDigitsOptions(rest).status(); },
     [](absl::string_view rest) -> absl::StatusOr<DatasetPair> {
       return DrawDigits(*ParseDigitsOptions(rest));
     },
     nullptr},
    {"synthetic", ":CxHxW[,classes=K,train=N,test=M]",
     [](absl::string_view rest) {
       return ParseSyntheticOptions(rest).status();
     },
     [](absl::string_view rest) -> absl::StatusOr<DatasetPair> {
       return DrawSynthetic(*ParseSyntheticOptions(rest));
     },
     nullptr},
};

const KnownDataset* Find(absl::string_view name) {
  const auto* found = std::find_if(
      std::begin(kKnown), std::end(kKnown),
      [&](const KnownDataset& known) { return known.name == name; });
  return found == std::end(kKnown) ? nullptr : found;
}

}  // namespace

absl::Status CheckDataset(absl::string_view spec) {
  const auto [name, rest] = Split(spec);
  const KnownDataset* known = Find(name);
  if (known != nullptr) {
    absl::Status status = known->check(rest);
    return status.ok() ? status
                       : absl::Status(status.code(),
                                      absl::StrCat(status.message(), ". Write ",
                                                   name, known->usage));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "unknown. Known: ",
      absl::StrJoin(kKnown, ", ", [](std::string* out, const KnownDataset& k) {
        absl::StrAppend(out, k.name, k.usage);
      })));
}

std::string DatasetKind(absl::string_view spec) {
  const auto [name, rest] = Split(spec);
  const KnownDataset* known = Find(name);
  if (known == nullptr || known->folder == nullptr) return std::string(spec);
  return absl::StrCat(name, rest.substr(known->folder(rest).size()));
}

absl::StatusOr<DatasetPair> LoadDataset(absl::string_view spec) {
  const auto [name, rest] = Split(spec);
  absl::StatusOr<DatasetPair> loaded;
  try {
    if (absl::Status s = CheckDataset(spec); !s.ok()) {
      loaded = s;
    } else {
      loaded = Find(name)->load(rest);
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
