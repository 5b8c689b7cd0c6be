#include "worker/data/idx_dataset.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "worker/data/gzip_file.h"

namespace psring {
namespace {

constexpr int kClasses = 10;
// 00 00, 08 for unsigned bytes, and the number of dimensions.
constexpr uint32_t kMagicOfLabels = 0x00000801;
constexpr uint32_t kMagicOfImages = 0x00000803;

// A checked IDX file of unsigned bytes.
struct IdxFile {
  FileContents contents;
  std::vector<int64_t> sizes;  // of each dimension, the number of items first

  size_t header_bytes() const { return 4 + 4 * sizes.size(); }
  absl::string_view payload() const {
    return absl::string_view(contents.bytes).substr(header_bytes());
  }
};

uint32_t BigEndian32(absl::string_view bytes, size_t offset) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value = value << 8 | static_cast<uint8_t>(bytes[offset + i]);
  }
  return value;
}

// Whether the payload has exactly the size that the header gives it. Nothing
// is multiplied that could overflow, nothing allocated.
absl::Status CheckSize(const IdxFile& file) {
  uint64_t item_bytes = 1;  // at most two factors of 32 bits
  for (size_t i = 1; i < file.sizes.size(); ++i) item_bytes *= file.sizes[i];
  const uint64_t items = file.sizes[0];
  const uint64_t have = file.payload().size();
  if (items == 0 || item_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.contents.path, ": the header says that it is empty"));
  }
  if (have / item_bytes == items && have % item_bytes == 0) {
    return absl::OkStatus();
  }
  return absl::DataLossError(absl::StrCat(
      file.contents.path, ": the header promises ", items, " items of ",
      item_bytes, " bytes, but ", have,
      " bytes follow it. The file is cut short or damaged; download it again"));
}

absl::StatusOr<IdxFile> ReadIdx(const std::string& folder,
                                absl::string_view name, uint32_t magic) {
  const std::string plain = absl::StrCat(folder, "/", name);
  auto contents = ReadFirstOf({plain, plain + ".gz"});
  if (!contents.ok()) return contents.status();
  IdxFile file;
  file.contents = *std::move(contents);
  file.sizes.resize(magic & 0xff);
  const std::string& bytes = file.contents.bytes;
  if (bytes.size() < file.header_bytes()) {
    return absl::DataLossError(absl::StrCat(
        file.contents.path, ": holds ", bytes.size(), " bytes, its header ",
        "alone has ", file.header_bytes(), ". Download the file again"));
  }
  const uint32_t found = BigEndian32(bytes, 0);
  if (found != magic) {
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s: magic number 0x%08x, expected 0x%08x (IDX, unsigned bytes, %d "
        "dimensions). Is this the right file?",
        file.contents.path, found, magic, magic & 0xff));
  }
  for (size_t i = 0; i < file.sizes.size(); ++i) {
    file.sizes[i] = BigEndian32(bytes, 4 + 4 * i);
  }
  if (absl::Status size = CheckSize(file); !size.ok()) return size;
  return file;
}

absl::StatusOr<Dataset> ReadPart(const std::string& folder,
                                 absl::string_view part) {
  auto images =
      ReadIdx(folder, absl::StrCat(part, "-images-idx3-ubyte"), kMagicOfImages);
  if (!images.ok()) return images.status();
  auto labels =
      ReadIdx(folder, absl::StrCat(part, "-labels-idx1-ubyte"), kMagicOfLabels);
  if (!labels.ok()) return labels.status();
  if (images->sizes[0] != labels->sizes[0]) {
    return absl::InvalidArgumentError(absl::StrCat(
        images->contents.path, " holds ", images->sizes[0], " images, but ",
        labels->contents.path, " ", labels->sizes[0],
        " labels. Take both from the same release"));
  }
  absl::Status range =
      CheckLabels(labels->contents.path, labels->payload(), kClasses);
  if (!range.ok()) return range;
  const std::vector<int64_t>& sizes = images->sizes;
  Dataset dataset;
  dataset.pixels = PixelsFromBytes(images->payload());
  dataset.shape = {1, sizes[1], sizes[2], kClasses};
  dataset.labels = LabelsFromBytes(labels->payload());
  dataset.mean = {0.1307};
  dataset.stddev = {0.3081};
  return dataset;
}

}  // namespace

absl::StatusOr<DatasetPair> LoadIdx(const std::string& folder) {
  auto train = ReadPart(folder, "train");
  if (!train.ok()) return train.status();
  auto test = ReadPart(folder, "t10k");
  if (!test.ok()) return test.status();
  const ImageShape& a = train->shape;
  const ImageShape& b = test->shape;
  if (!(a == b)) {
    return absl::InvalidArgumentError(
        absl::StrCat(folder, ": training images are ", a.height, "x", a.width,
                     ", test images ", b.height, "x", b.width));
  }
  return DatasetPair{*std::move(train), *std::move(test)};
}

}  // namespace psring
