#include "common/net/doorbell.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/net/poll_timeout.h"

namespace psring {

absl::StatusOr<std::unique_ptr<Doorbell>> Doorbell::Create() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC | O_NONBLOCK) != 0) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot make a pipe: ", std::strerror(errno),
                     ". Raise the limit of open files (ulimit -n)"));
  }
  return std::unique_ptr<Doorbell>(new Doorbell(fds[0], fds[1]));
}

Doorbell::~Doorbell() {
  close(read_fd_);
  close(write_fd_);
}

void Doorbell::Wait(int other_fd, Time deadline) {
  pollfd items[] = {{read_fd_, POLLIN, 0}, {other_fd, POLLIN, 0}};
  poll(items, 2, PollTimeoutMs(deadline));
}

void Doorbell::Clear() {
  char drained[512];
  while (read(read_fd_, drained, sizeof(drained)) == sizeof(drained)) {
  }
}

absl::StatusOr<std::unique_ptr<DoorbellButton>> DoorbellButton::Open(
    int64_t pid, int write_fd) {
  const std::string path = absl::StrCat("/proc/", pid, "/fd/", write_fd);
  struct stat file;
  if (stat(path.c_str(), &file) != 0 || !S_ISFIFO(file.st_mode)) {
    return absl::UnavailableError(absl::StrCat(path, " is not a pipe"));
  }
  // Reading too: a pipe whose reader is gone must not raise SIGPIPE here.
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) {
    return absl::UnavailableError(
        absl::StrCat(path, ": ", std::strerror(errno)));
  }
  return std::unique_ptr<DoorbellButton>(new DoorbellButton(fd));
}

DoorbellButton::~DoorbellButton() { close(fd_); }

void DoorbellButton::Ring() {
  const char byte = 0;
  // A full pipe has woken its reader already.
  while (write(fd_, &byte, 1) < 0 && errno == EINTR) {
  }
}

}  // namespace psring
