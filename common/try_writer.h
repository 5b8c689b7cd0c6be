// Writes to a descriptor whose reader may have stopped, as a pager or a
// terminal after Ctrl-S does, without waiting for that reader.
#ifndef PSRING_COMMON_TRY_WRITER_H_
#define PSRING_COMMON_TRY_WRITER_H_

#include <sys/types.h>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace psring {

// One thread's own at a time.
class TryWriter {
 public:
  // `fd` stays the caller's, and its flags, which other processes share, stay
  // as they are: pipes and terminals are opened once more. Where `fd` comes to
  // lead elsewhere, so does this.
  explicit TryWriter(int fd) : fd_(fd) {}
  ~TryWriter();
  TryWriter(const TryWriter&) = delete;
  TryWriter& operator=(const TryWriter&) = delete;

  // Writes the beginning of `text`, as much as is taken now, and returns its
  // size. -1: it cannot be written, as errno says.
  ssize_t Write(absl::string_view text);

  // Blocks until something is taken, at most for `patience`; false: nothing is.
  bool Await(absl::Duration patience);

 private:
  // What to write to: `fd_`, or another way to the same that never blocks.
  int Target();
  void CloseOwn();

  const int fd_;
  int own_ = -1;
  // What `fd_` led to when `own_` was opened, or could not be.
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace psring

#endif  // PSRING_COMMON_TRY_WRITER_H_
