#include "common/process/standard_files.h"

#include <fcntl.h>
#include <unistd.h>

namespace psring {

void OpenStandardFiles() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) >= 0) continue;
    // Takes the lowest number that is free: this one.
    [[maybe_unused]] const int null = open("/dev/null", O_RDWR);
  }
}

}  // namespace psring
