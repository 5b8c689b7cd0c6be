#include "common/trace/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/trace/earlier_file.h"

namespace psring {

absl::StatusOr<std::unique_ptr<TraceFile>> TraceFile::Create(
    const std::string& path, int64_t max_bytes) {
  KeepEarlierFile(path);
  const int fd =
      open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) {
    return absl::PermissionDeniedError(
        absl::StrCat("cannot write ", path, ": ", strerror(errno)));
  }
  std::unique_ptr<TraceFile> file(new TraceFile(path, fd, max_bytes));
  if (absl::Status s = file->WriteAt(0, "[]"); !s.ok()) return s;
  if (absl::Status s = file->Extend(); !s.ok()) return s;
  return file;
}

TraceFile::~TraceFile() {
  if (Flush().ok() && offset_ < end_ && WriteAt(offset_, "]\n").ok()) {
    [[maybe_unused]] int cut = ftruncate(fd_, offset_ + 2);
  }
  close(fd_);
}

absl::Status TraceFile::WriteAt(int64_t offset, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot write ", path_, ": ", strerror(errno)));
    }
    bytes.remove_prefix(written);
    offset += written;
  }
  return absl::OkStatus();
}

absl::Status TraceFile::Extend() {
  const int64_t end = ((end_ + 1) / kRegionBytes + 1) * kRegionBytes;
  if (end > max_bytes_) return absl::ResourceExhaustedError("full");
  const std::string spaces(end - end_ - 1, ' ');
  if (absl::Status s = WriteAt(end_ + 1, spaces); !s.ok()) return s;
  absl::Status status = WriteAt(end - 1, "]");
  if (status.ok()) status = WriteAt(end_, " ");
  if (status.ok()) end_ = end - 1;
  return status;
}

// In the page that is being filled.
int64_t TraceFile::Room() const {
  const int64_t page_end = (offset_ / kPageBytes + 1) * kPageBytes;
  return std::min(page_end, end_) - offset_ -
         static_cast<int64_t>(page_.size());
}

absl::Status TraceFile::Append(absl::string_view event, bool last_words) {
  const auto size = static_cast<int64_t>(event.size()) + 2;
  if (size > kPageBytes / 2) {
    return absl::InvalidArgumentError("an event of more than half a page");
  }
  if (size > Room()) {
    if (absl::Status s = Flush(); !s.ok()) return s;
    const int64_t next = (offset_ / kPageBytes + 1) * kPageBytes;
    if (next >= max_bytes_ - (last_words ? 0 : kPageBytes)) {
      return absl::ResourceExhaustedError("full");
    }
    if (next > end_) {
      if (absl::Status s = Extend(); !s.ok()) return s;
    }
    offset_ = next;
  }
  absl::StrAppend(&page_, empty_ ? "" : ",", event, "\n");
  empty_ = false;
  return absl::OkStatus();
}

absl::Status TraceFile::Flush() {
  if (absl::Status s = WriteAt(offset_, page_); !s.ok()) return s;
  offset_ += static_cast<int64_t>(page_.size());
  page_.clear();
  return absl::OkStatus();
}

}  // namespace psring
