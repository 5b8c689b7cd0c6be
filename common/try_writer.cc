#include "common/try_writer.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"

namespace psring {
namespace {

// Whether a second open of the same leads to the same reader. A file would be
// written from its beginning.
bool MayOpenAgain(const struct stat& about, int fd) {
  return S_ISFIFO(about.st_mode) || (S_ISCHR(about.st_mode) && isatty(fd));
}

}  // namespace

TryWriter::~TryWriter() { CloseOwn(); }

void TryWriter::CloseOwn() {
  if (own_ >= 0) close(own_);
  own_ = -1;
}

int TryWriter::Target() {
  struct stat about = {};
  if (fstat(fd_, &about) != 0) return fd_;
  if (about.st_dev == device_ && about.st_ino == inode_) {
    return own_ >= 0 ? own_ : fd_;
  }
  CloseOwn();
  device_ = about.st_dev;
  inode_ = about.st_ino;
  if (MayOpenAgain(about, fd_)) {
    const std::string path = absl::StrCat("/proc/self/fd/", fd_);
    own_ = open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  }
  return own_ >= 0 ? own_ : fd_;
}

ssize_t TryWriter::Write(absl::string_view text) {
  const int target = Target();
  size_t written = 0;
  while (written < text.size()) {
    pollfd item = {target, POLLOUT, 0};
    if (poll(&item, 1, 0) <= 0) break;
    // So much a pipe that takes anything takes at once, also where it could not
    // be opened again.
    const size_t size = std::min<size_t>(text.size() - written, PIPE_BUF);
    const ssize_t n = write(target, text.data() + written, size);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return -1;
    written += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(written);
}

bool TryWriter::Await(absl::Duration patience) {
  pollfd item = {Target(), POLLOUT, 0};
  return poll(&item, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) >
         0;
}

}  // namespace psring
