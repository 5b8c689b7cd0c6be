#include "common/state/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace psring {
namespace {

// A pipe blocks, and what is read from a device has no end.
bool IsOfDisk(mode_t mode, int flags) {
  const bool reads = (flags & O_ACCMODE) == O_RDONLY;
  return S_ISREG(mode) || (reads ? S_ISDIR(mode) : S_ISCHR(mode));
}

}  // namespace

absl::Status FileError(const char* call, const std::string& path, int error) {
  const std::string message = absl::StrCat(
      call, " ", path, ": ", std::generic_category().message(error));
  const bool full = error == ENOSPC || error == EDQUOT;
  return full ? absl::ResourceExhaustedError(message)
              : absl::InternalError(message);
}

absl::StatusOr<File> File::Open(std::string path, int flags, mode_t mode) {
  int fd;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, mode);
    // Somebody's lease on it, as a file server's, is being recalled: soon.
    if (fd < 0 && errno == EWOULDBLOCK) {
      absl::SleepFor(absl::Milliseconds(10));
      errno = EINTR;
    }
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) {
    const int error = errno;
    const absl::Status failure = FileError("open", path, error);
    const bool missing = error == ENOENT || error == ENOTDIR;
    if (missing) return absl::NotFoundError(failure.message());
    if (error == EACCES) return absl::PermissionDeniedError(failure.message());
    return failure;
  }
  File file(std::move(path), fd);
  struct stat info;
  if (fstat(fd, &info) != 0) return file.Failed("fstat");
  if (IsOfDisk(info.st_mode, flags)) return file;
  return absl::InternalError(
      absl::StrCat("open ", file.path(), ": it is no file on a disk"));
}

absl::StatusOr<bool> File::IsInPlace() const {
  struct stat own, there;
  if (fstat(fd_, &own) != 0) {
    if (errno == ESTALE) return false;  // a network file system's
    return Failed("fstat");
  }
  if (stat(path_.c_str(), &there) == 0) {
    return own.st_dev == there.st_dev && own.st_ino == there.st_ino;
  }
  if (errno == ENOENT || errno == ENOTDIR || errno == ESTALE) return false;
  return Failed("stat");
}

File::~File() {
  if (fd_ >= 0) close(fd_);
}

absl::Status File::Failed(const char* call) const {
  return FileError(call, path_, errno);
}

absl::StatusOr<int64_t> File::Size() const {
  struct stat info;
  if (fstat(fd_, &info) != 0) return Failed("fstat");
  return info.st_size;
}

absl::Status File::Resize(int64_t size) {
  while (ftruncate(fd_, size) != 0) {
    if (errno != EINTR) return Failed("ftruncate");
  }
  return absl::OkStatus();
}

absl::Status File::WriteAt(int64_t offset, const void* data, int64_t size) {
  const char* bytes = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t written = pwrite(fd_, bytes, size, offset);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return Failed("write");
    bytes += written;
    offset += written;
    size -= written;
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> File::ReadSomeAt(int64_t offset, void* data,
                                         int64_t size) const {
  while (true) {
    const ssize_t got = pread(fd_, data, size, offset);
    if (got >= 0) return got;
    if (errno != EINTR) return Failed("read");
  }
}

absl::Status File::ReadAt(int64_t offset, void* data, int64_t size) const {
  char* bytes = static_cast<char*>(data);
  while (size > 0) {
    const absl::StatusOr<int64_t> got = ReadSomeAt(offset, bytes, size);
    if (!got.ok()) return got.status();
    if (*got == 0) {
      return absl::DataLossError(absl::StrCat(path_, " ends at byte ", offset,
                                              ", ", size, " bytes too soon"));
    }
    bytes += *got;
    offset += *got;
    size -= *got;
  }
  return absl::OkStatus();
}

absl::Status File::Sync() {
  while (fsync(fd_) != 0) {
    if (errno != EINTR) return Failed("fsync");
  }
  return absl::OkStatus();
}

absl::Status File::Lock() {
  while (flock(fd_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return absl::UnavailableError(absl::StrCat(path_, " is locked"));
    }
    if (errno != EINTR) return Failed("flock");
  }
  return absl::OkStatus();
}

}  // namespace psring
