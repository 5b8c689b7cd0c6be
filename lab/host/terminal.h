// What a stream leads to: a terminal of some width, and with colours, or not.
#ifndef PSRING_LAB_HOST_TERMINAL_H_
#define PSRING_LAB_HOST_TERMINAL_H_

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/try_writer.h"

namespace psring {

// The width of the terminal that `out` is; 0 where it is none, or one that
// cannot move its cursor (TERM=dumb).
int TerminalColumns(FILE* out);

// "[######......]", `width` characters between the brackets; `share` of 1.
std::string ProgressBar(double share, int width);

// Lines below all others, drawn anew in place, on a terminal; elsewhere nothing
// of them is shown. What else goes to `out` meanwhile goes through Print.
//
// Nothing waits for a reader that has stopped, but what it has not taken is
// kept.
class LiveBlock {
 public:
  explicit LiveBlock(FILE* out) : LiveBlock(out, TerminalColumns(out)) {}
  // `columns` 0: `out` is no terminal.
  LiveBlock(FILE* out, int columns);
  LiveBlock(LiveBlock&&) = default;
  // Waits for the reader for a second.
  ~LiveBlock();

  bool live() const { return columns_ > 0; }
  // Whether `out` leads nowhere any more, as a write has found or Close() has
  // said: a pipe that nobody reads, or a terminal that has gone (where SIGPIPE
  // is ignored). Nothing is written then.
  bool closed() const { return closed_; }
  void Close();
  // Whether anybody can read what is written to `out`. True of files.
  bool HasReader() const;

  // Writes `text`, whole lines, above the block, at once.
  void Print(absl::string_view text);

  // Writes what is left, for at most `patience`; whether all is written.
  bool Flush(absl::Duration patience = absl::ZeroDuration());
  // What to poll for POLLOUT while something is left; else -1.
  int blocked_fd() const;
  // Its bytes.
  size_t left() const { return left_.size(); }

  // Shows these lines, each as far as it fits. None: takes the block away.
  void Draw(std::vector<std::string> lines);

 private:
  std::string Erased() const;  // what erases the block
  std::string Drawn() const;
  void Write(absl::string_view text);

  FILE* out_;
  int columns_;
  std::unique_ptr<TryWriter> writer_;  // null: `out` is memory
  std::vector<std::string> lines_;
  std::string left_;  // to write
  bool closed_ = false;
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_TERMINAL_H_
