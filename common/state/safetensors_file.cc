#include "common/state/safetensors_file.h"

#include <fcntl.h>
#include <zlib.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

absl::Status Annotate(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

}  // namespace

absl::StatusOr<SafetensorsFile> SafetensorsFile::Create(
    const std::string& path, std::vector<TensorEntry> entries) {
  absl::StatusOr<std::string> header =
      LayOutSafetensors(absl::MakeSpan(entries));
  if (!header.ok()) return Annotate(path, header.status());
  absl::StatusOr<File> opened = File::Open(path, O_RDWR | O_CREAT | O_TRUNC);
  if (!opened.ok()) return opened.status();
  SafetensorsFile file(*std::move(opened));
  file.data_begin_ = static_cast<int64_t>(header->size());
  const int64_t data_bytes = entries.empty() ? 0 : entries.back().end;
  absl::Status status = file.WriteAt(0, header->data(), file.data_begin_);
  if (status.ok()) status = file.file_.Resize(file.data_begin_ + data_bytes);
  if (!status.ok()) return status;
  file.SetEntries(std::move(entries));
  return file;
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path,
                                                      int flags) {
  absl::StatusOr<File> opened = File::Open(path, flags);
  if (!opened.ok()) return opened.status();
  SafetensorsFile file(*std::move(opened));
  if (absl::Status status = file.ReadHeader(); !status.ok()) return status;
  return file;
}

absl::Status SafetensorsFile::ReadHeader() {
  absl::StatusOr<int64_t> size = file_.Size();
  if (!size.ok()) return size.status();
  char length[kSafetensorsLengthBytes];
  absl::Status status = file_.ReadAt(0, length, kSafetensorsLengthBytes);
  if (!status.ok()) return status;
  absl::StatusOr<int64_t> header_bytes = ParseSafetensorsLength(length, *size);
  if (!header_bytes.ok()) return Annotate(path(), header_bytes.status());
  std::string header(*header_bytes, '\0');
  status = file_.ReadAt(kSafetensorsLengthBytes, header.data(), *header_bytes);
  if (!status.ok()) return status;
  data_begin_ = kSafetensorsLengthBytes + *header_bytes;
  absl::StatusOr<std::vector<TensorEntry>> entries =
      ParseSafetensorsHeader(header, *size - data_begin_);
  if (!entries.ok()) return Annotate(path(), entries.status());
  SetEntries(*std::move(entries));
  return absl::OkStatus();
}

void SafetensorsFile::SetEntries(std::vector<TensorEntry> entries) {
  entries_ = std::move(entries);
  for (size_t i = 0; i < entries_.size(); ++i) {
    index_of_name_[entries_[i].name] = i;
  }
}

const TensorEntry* SafetensorsFile::Find(const std::string& name) const {
  const auto found = index_of_name_.find(name);
  return found == index_of_name_.end() ? nullptr : &entries_[found->second];
}

absl::Status SafetensorsFile::Write(const TensorEntry& entry, int64_t offset,
                                    const void* data, int64_t size) {
  return WriteAt(PositionOf(entry, offset), data, size);
}

absl::Status SafetensorsFile::WriteAt(int64_t position, const void* data,
                                      int64_t size) {
  if (size == 0) return absl::OkStatus();
  const auto crc = static_cast<uint32_t>(
      crc32_z(0, static_cast<const Bytef*>(data), static_cast<z_size_t>(size)));
  if (written_.empty() ||
      written_.back().begin() + written_.back().size() != position) {
    written_.emplace_back().set_begin(position);
  }
  proto::SavedState::Run& run = written_.back();
  run.set_crc(static_cast<uint32_t>(crc32_combine(run.crc(), crc, size)));
  run.set_size(run.size() + size);
  return file_.WriteAt(position, data, size);
}

absl::Status SafetensorsFile::Read(const TensorEntry& entry, int64_t offset,
                                   void* data, int64_t size) const {
  return file_.ReadAt(PositionOf(entry, offset), data, size);
}

}  // namespace psring
