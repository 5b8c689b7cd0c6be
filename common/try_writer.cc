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

// Another way to the same reader that never blocks, for the caller to close;
// -1: there is none. A file would be written from its beginning.
int OpenAgain(int fd) {
  struct stat about = {};
  if (fstat(fd, &about) != 0) return -1;
  const bool terminal = S_ISCHR(about.st_mode) && isatty(fd);
  if (!S_ISFIFO(about.st_mode) && !terminal) return -1;
  const std::string path = absl::StrCat("/proc/self/fd/", fd);
  return open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

ssize_t TryWriter::Write(absl::string_view text) const {
  const int own = OpenAgain(fd_);
  const int target = own >= 0 ? own : fd_;
  size_t written = 0;
  int error = 0;
  while (written < text.size() && error == 0) {
    pollfd item = {target, POLLOUT, 0};
    if (poll(&item, 1, 0) <= 0) break;
    // So much a pipe that takes anything takes at once, also where it could not
    // be opened again.
    const size_t size = std::min<size_t>(text.size() - written, PIPE_BUF);
    const ssize_t n = write(target, text.data() + written, size);
    if (n >= 0) {
      written += static_cast<size_t>(n);
    } else if (errno == EAGAIN) {
      break;
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (own >= 0) close(own);
  errno = error;
  return error != 0 ? -1 : static_cast<ssize_t>(written);
}

bool TryWriter::Await(absl::Duration patience) const {
  pollfd item = {fd_, POLLOUT, 0};
  return poll(&item, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) >
         0;
}

}  // namespace psring
