// A safetensors file on disk, written and read in parts.
#ifndef PSRING_COMMON_STATE_SAFETENSORS_FILE_H_
#define PSRING_COMMON_STATE_SAFETENSORS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/state/file.h"
#include "common/state/safetensors.h"
#include "protos/cluster.pb.h"

namespace psring {

// Owns the open file. Every error names it.
class SafetensorsFile {
 public:
  // Creates or overwrites `path` at its full size: the header of `entries`
  // (whose offsets it gives) and zeros.
  static absl::StatusOr<SafetensorsFile> Create(
      const std::string& path, std::vector<TensorEntry> entries);

  // Opens `path`, with open's `flags`, and checks its header. NOT_FOUND where
  // there is no such file, DATA_LOSS where the header or the size is wrong.
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path,
                                              int flags);

  const std::string& path() const { return file_.path(); }
  // In the data's order.
  const std::vector<TensorEntry>& entries() const { return entries_; }
  // Null where there is no such tensor.
  const TensorEntry* Find(const std::string& name) const;

  // Where byte `offset` of one of entries() lies in the file.
  int64_t PositionOf(const TensorEntry& entry, int64_t offset) const {
    return data_begin_ + entry.begin + offset;
  }
  // `size` bytes at a position of the file.
  absl::Status WriteAt(int64_t position, const void* data, int64_t size);

  // `size` bytes of one of entries(), from its byte `offset` on.
  absl::Status Write(const TensorEntry& entry, int64_t offset, const void* data,
                     int64_t size);
  absl::Status Read(const TensorEntry& entry, int64_t offset, void* data,
                    int64_t size) const;

  // What this object has written: of each run of bytes that follow each other,
  // the checksum of what was in memory. The zeros of Create are none of it.
  const std::vector<proto::SavedState::Run>& written() const {
    return written_;
  }

  // Returns when the disk has it all.
  absl::Status Sync() { return file_.Sync(); }

 private:
  explicit SafetensorsFile(File file) : file_(std::move(file)) {}

  absl::Status ReadHeader();
  void SetEntries(std::vector<TensorEntry> entries);

  File file_;
  int64_t data_begin_ = 0;
  std::vector<TensorEntry> entries_;
  std::unordered_map<std::string, size_t> index_of_name_;
  std::vector<proto::SavedState::Run> written_;
};

}  // namespace psring

#endif  // PSRING_COMMON_STATE_SAFETENSORS_FILE_H_
