// Writes to a descriptor whose reader may have stopped, as a pager or a
// terminal after Ctrl-S does, without waiting for that reader.
#ifndef PSRING_COMMON_TRY_WRITER_H_
#define PSRING_COMMON_TRY_WRITER_H_

#include <sys/types.h>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace psring {

class TryWriter {
 public:
  // `fd` stays the caller's, and its flags, which other processes share, stay
  // as they are.
  explicit TryWriter(int fd) : fd_(fd) {}

  // Writes the beginning of `text`, as much as is taken now, and returns its
  // size. -1: it cannot be written, as errno says.
  ssize_t Write(absl::string_view text) const;

  // Blocks until something is taken, at most for `patience`; false: nothing is.
  bool Await(absl::Duration patience) const;

 private:
  const int fd_;
};

}  // namespace psring

#endif  // PSRING_COMMON_TRY_WRITER_H_
