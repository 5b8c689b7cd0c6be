#include "worker/data/image_folder.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <new>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/fnv.h"
#include "common/split_mix.h"
#include "worker/data/encoded_image.h"
#include "worker/data/gzip_file.h"
#include "worker/data/image_crop.h"

namespace psring {
namespace {

namespace fs = std::filesystem;

constexpr int kChannels = 3;
constexpr int kSmallestSide = 8;
constexpr int kLargestSide = 4096;
// Of a file: far more than a picture of EncodedImage::kMostPixels in JPEG.
constexpr int64_t kMostFileBytes = int64_t{1} << 30;

constexpr char kLayout[] =
    "Expected are train/CLASS/PICTURE and val/CLASS/PICTURE, in .jpg, .jpeg "
    "or .png";

absl::Status ErrorOf(const std::error_code& error, const fs::path& path) {
  return absl::ErrnoToStatus(error.value(), path.string());
}

bool IsPicture(const fs::path& path) {
  const std::string ending = absl::AsciiStrToLower(path.extension().string());
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

bool IsHidden(const fs::path& path) {
  return absl::StartsWith(path.filename().string(), ".");
}

// The names of the folders in `folder`, sorted.
absl::StatusOr<std::vector<std::string>> FoldersIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entry(folder, error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    std::error_code unknown;
    if (IsHidden(entry->path()) || !entry->is_directory(unknown)) continue;
    names.push_back(entry->path().filename().string());
  }
  if (error) return ErrorOf(error, folder);
  std::sort(names.begin(), names.end());
  return names;
}

// Relative to `folder`, sorted.
absl::StatusOr<std::vector<std::string>> PicturesIn(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  // Links to folders are not followed: they may lead in circles.
  fs::recursive_directory_iterator entry(folder, error);
  for (; !error && entry != fs::recursive_directory_iterator();
       entry.increment(error)) {
    std::error_code unknown;
    const bool is_folder = entry->is_directory(unknown);
    if (IsHidden(entry->path())) {
      if (is_folder) entry.disable_recursion_pending();
      continue;
    }
    if (!is_folder && IsPicture(entry->path())) {
      names.push_back(entry->path().lexically_relative(folder).string());
    }
  }
  if (error) return ErrorOf(error, folder);
  std::sort(names.begin(), names.end());
  return names;
}

// The pictures of one of the two parts, in the order of their indices.
struct Listing {
  fs::path folder;
  std::vector<std::string> classes;
  std::vector<int64_t> labels;
  std::vector<std::string> names;  // within the folder of the class
};

class FolderImages : public ImageSource {
 public:
  FolderImages(Listing listing, int side, bool augment)
      : listing_(std::move(listing)), side_(side), augment_(augment) {}

  absl::Status Read(int64_t index, uint64_t draw,
                    absl::Span<uint8_t> out) const override {
    const std::string path = PathOf(index);
    try {
      auto bytes = ReadPlain(path, kMostFileBytes);
      if (!bytes.ok()) return bytes.status();
      absl::Status status =
          Show(*std::move(bytes), SplitMix64(draw).Fork(index), out);
      if (status.ok()) return status;
      return absl::Status(
          status.code(),
          absl::StrCat(path, ": ", status.message(),
                       ". Replace the file or remove it, and start again"));
    } catch (const std::bad_alloc&) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, ": not enough memory to decode it"));
    }
  }

 private:
  std::string PathOf(int64_t index) const {
    const std::string& name = listing_.classes[listing_.labels[index]];
    return (listing_.folder / name / listing_.names[index]).string();
  }

  absl::Status Show(std::string bytes, SplitMix64 random,
                    absl::Span<uint8_t> out) const {
    auto image = EncodedImage::Parse(std::move(bytes));
    if (!image.ok()) return image.status();
    const ImageCrop crop =
        augment_ ? RandomCrop(image->width(), image->height(), random)
                 : CentralCrop(image->width(), image->height());
    return image->Draw(crop, side_, out);
  }

  const Listing listing_;
  const int side_;
  const bool augment_;
};

absl::StatusOr<Listing> List(const fs::path& folder) {
  auto classes = FoldersIn(folder);
  if (!classes.ok()) {
    return absl::Status(
        classes.status().code(),
        absl::StrCat(classes.status().message(), ". ", kLayout));
  }
  if (classes->empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        folder.string(), " holds no folder of a class. ", kLayout));
  }
  Listing listing = {folder, *std::move(classes), {}, {}};
  for (size_t label = 0; label < listing.classes.size(); ++label) {
    const fs::path of_class = folder / listing.classes[label];
    auto names = PicturesIn(of_class);
    if (!names.ok()) return names.status();
    if (names->empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat(of_class.string(), " holds no pictures. ", kLayout));
    }
    listing.labels.insert(listing.labels.end(), names->size(),
                          static_cast<int64_t>(label));
    std::move(names->begin(), names->end(), std::back_inserter(listing.names));
  }
  return listing;
}

absl::Status CheckClasses(const Listing& train, const Listing& test) {
  if (train.classes.size() < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat(train.folder.string(), " holds ", train.classes.size(),
                     " classes; there must be two at least. ", kLayout));
  }
  std::vector<std::string> differ;
  std::set_symmetric_difference(train.classes.begin(), train.classes.end(),
                                test.classes.begin(), test.classes.end(),
                                std::back_inserter(differ));
  if (differ.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      train.folder.string(), " and ", test.folder.string(),
      " hold different classes: ", differ.front(), " is in one of them only"));
}

Dataset DatasetOf(Listing listing, int side, bool augment) {
  Dataset dataset;
  dataset.shape = {kChannels, side, side,
                   static_cast<int64_t>(listing.classes.size())};
  // ImageNet's, which models are commonly trained with.
  dataset.mean = {0.485, 0.456, 0.406};
  dataset.stddev = {0.229, 0.224, 0.225};
  dataset.labels = listing.labels;
  dataset.source =
      std::make_shared<FolderImages>(std::move(listing), side, augment);
  return dataset;
}

uint64_t HashOf(const Listing& train, const Listing& test) {
  const absl::string_view end("\0", 1);  // of a name
  Fnv hash;
  for (const Listing* part : {&train, &test}) {
    for (size_t i = 0; i < part->names.size(); ++i) {
      hash.Add(part->classes[part->labels[i]]).Add(end);
      hash.Add(part->names[i]).Add(end);
    }
  }
  return hash.value();
}

bool IsOption(absl::string_view part) {
  return absl::StartsWith(part, "size=") || absl::StartsWith(part, "augment=");
}

absl::Status ParsePart(absl::string_view part, ImageFolderOptions& options) {
  const absl::string_view given = part;
  if (absl::ConsumePrefix(&part, "size=")) {
    if (absl::SimpleAtoi(part, &options.side) &&
        options.side >= kSmallestSide && options.side <= kLargestSide) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("'", given, "': expected a number of pixels from ",
                     kSmallestSide, " to ", kLargestSide));
  }
  if (part == "augment=yes" || part == "augment=no") {
    options.augment = part == "augment=yes";
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("'", given, "': expected augment=yes or augment=no"));
}

}  // namespace

absl::StatusOr<ImageFolderOptions> ParseImageFolderOptions(
    absl::string_view text) {
  ImageFolderOptions options;
  std::set<absl::string_view> seen;
  // From the end: a folder's name may have commas.
  for (size_t comma = text.rfind(',');
       comma != text.npos && IsOption(text.substr(comma + 1));
       comma = text.rfind(',')) {
    const absl::string_view part = text.substr(comma + 1);
    const absl::string_view key = part.substr(0, part.find('=') + 1);
    if (!seen.insert(key).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", part, "': ", key, " comes twice"));
    }
    absl::Status parsed = ParsePart(part, options);
    if (!parsed.ok()) return parsed;
    text = text.substr(0, comma);
  }
  options.folder = std::string(text);
  if (!options.folder.empty()) return options;
  return absl::InvalidArgumentError("names no folder");
}

absl::StatusOr<DatasetPair> LoadImageFolder(const ImageFolderOptions& options) {
  const fs::path folder(options.folder);
  auto train = List(folder / "train");
  if (!train.ok()) return train.status();
  std::error_code unknown;
  const bool has_val = fs::exists(folder / "val", unknown) ||
                       !fs::exists(folder / "test", unknown);
  auto test = List(folder / (has_val ? "val" : "test"));
  if (!test.ok()) return test.status();
  if (absl::Status s = CheckClasses(*train, *test); !s.ok()) return s;
  const uint64_t hash = HashOf(*train, *test);
  return DatasetPair{
      DatasetOf(*std::move(train), options.side, options.augment),
      DatasetOf(*std::move(test), options.side, /*augment=*/false),
      absl::StrCat("listing=", absl::Hex(hash, absl::kZeroPad16))};
}

}  // namespace psring
