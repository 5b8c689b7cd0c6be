// A file on disk whose calls either do all they are asked or say what failed.
#ifndef PSRING_COMMON_STATE_FILE_H_
#define PSRING_COMMON_STATE_FILE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace psring {

// "mkdir /a: No space left on device", of a call that failed with this errno:
// RESOURCE_EXHAUSTED on a full disk, else INTERNAL.
absl::Status FileError(const char* call, const std::string& path, int error);

// Owns its descriptor. Positions are the caller's, so processes and threads may
// write disjoint parts of one file at once. Errors name the call, the file and
// the system's reason, as FileError does.
class File {
 public:
  // `flags` as open's; `mode` is that of a file that it makes. NOT_FOUND where
  // there is no such file, PERMISSION_DENIED where this user may not open it; a
  // pipe is an error, as it would block, and so is a device to read.
  static absl::StatusOr<File> Open(std::string path, int flags,
                                   mode_t mode = 0644);

  File(File&& other) noexcept
      : path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}
  File& operator=(File&&) = delete;
  ~File();

  const std::string& path() const { return path_; }

  absl::StatusOr<int64_t> Size() const;
  absl::Status Resize(int64_t size);
  absl::Status WriteAt(int64_t offset, const void* data, int64_t size);
  // Up to `size` bytes; how many there were, 0 only at the end of the file.
  absl::StatusOr<int64_t> ReadSomeAt(int64_t offset, void* data,
                                     int64_t size) const;
  // DATA_LOSS where the file ends before `size` bytes.
  absl::Status ReadAt(int64_t offset, void* data, int64_t size) const;
  // Returns when the disk has it.
  absl::Status Sync();
  // For this object alone, until it goes or its process ends, whatever ends it.
  // Never blocks: UNAVAILABLE where another has locked the file.
  absl::Status Lock();
  // Whether its path still leads to this file: somebody may have removed it or
  // its folder since, or put another one there.
  absl::StatusOr<bool> IsInPlace() const;

 private:
  File(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  absl::Status Failed(const char* call) const;

  std::string path_;
  int fd_;
};

}  // namespace psring

#endif  // PSRING_COMMON_STATE_FILE_H_
