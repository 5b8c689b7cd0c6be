#include "worker/data/cifar10_dataset.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "worker/data/gzip_file.h"

namespace psring {
namespace {

constexpr int kClasses = 10;
constexpr int64_t kChannels = 3, kSide = 32;
constexpr int64_t kPixelBytes = kChannels * kSide * kSide;
constexpr int64_t kRecordBytes = 1 + kPixelBytes;

// What records hold, apart.
struct Records {
  std::string labels;
  std::string pixels;
};

absl::Status CheckSize(const FileContents& file) {
  const int64_t size = file.bytes.size();
  if (size > 0 && size % kRecordBytes == 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      file.path, ": ", size, " bytes are not whole records of ", kRecordBytes,
      " (a label and 3x32x32 pixels). The file is cut short, damaged or not ",
      "CIFAR-10's binary version; download it again"));
}

absl::Status Append(const FileContents& file, Records& records) {
  if (absl::Status size = CheckSize(file); !size.ok()) return size;
  const absl::string_view bytes = file.bytes;
  std::string labels;
  for (size_t at = 0; at < bytes.size(); at += kRecordBytes) {
    labels.push_back(bytes[at]);
    const absl::string_view pixels = bytes.substr(at + 1, kPixelBytes);
    records.pixels.append(pixels.data(), pixels.size());
  }
  records.labels += labels;
  return CheckLabels(file.path, labels, kClasses);
}

absl::StatusOr<Dataset> ReadFiles(const std::string& folder,
                                  const std::vector<std::string>& names) {
  Records records;
  for (const std::string& name : names) {
    auto file =
        ReadFirstOf({absl::StrCat(folder, "/", name),
                     absl::StrCat(folder, "/cifar-10-batches-bin/", name)});
    if (!file.ok()) return file.status();
    absl::Status status = Append(*file, records);
    if (!status.ok()) return status;
  }
  Dataset dataset;
  dataset.pixels = PixelsFromBytes(records.pixels);
  dataset.shape = {kChannels, kSide, kSide, kClasses};
  dataset.labels = LabelsFromBytes(records.labels);
  dataset.mean = {0.4914, 0.4822, 0.4465};
  dataset.stddev = {0.2470, 0.2435, 0.2616};
  return dataset;
}

}  // namespace

absl::StatusOr<DatasetPair> LoadCifar10(const std::string& folder) {
  std::vector<std::string> batches;
  for (int i = 1; i <= 5; ++i) {
    batches.push_back(absl::StrCat("data_batch_", i, ".bin"));
  }
  auto train = ReadFiles(folder, batches);
  if (absl::IsNotFound(train.status())) {
    return absl::NotFoundError(
        absl::StrCat(train.status().message(),
                     ". psring reads CIFAR-10's binary version "
                     "(cifar-10-binary.tar.gz)"));
  }
  if (!train.ok()) return train.status();
  auto test = ReadFiles(folder, {"test_batch.bin"});
  if (!test.ok()) return test.status();
  return DatasetPair{*std::move(train), *std::move(test)};
}

}  // namespace psring
