// Cuts a stream of bytes into lines.
#ifndef PSRING_LAB_HOST_LINE_BUFFER_H_
#define PSRING_LAB_HOST_LINE_BUFFER_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "common/clock.h"

namespace psring {

class LineBuffer {
 public:
  using OnLine = absl::FunctionRef<void(absl::string_view)>;

  // A longer line is cut, so that a stream without newlines stays small.
  static constexpr size_t kMaxLineBytes = 64 * 1024;
  // A line that a carriage return lets the next one overwrite, as a progress
  // bar's, is one so often.
  static constexpr absl::Duration kOverwrittenEvery = absl::Seconds(5);

  // Calls `on_line` for every line that `bytes`, which came `now`, complete,
  // without its newline (or carriage return and newline).
  void Append(Time now, absl::string_view bytes, OnLine on_line);

  // The stream has ended: what came after the last newline is a line too.
  void Finish(OnLine on_line);

 private:
  void Overwrite(Time now, OnLine on_line);

  std::string unfinished_;
  bool returned_ = false;  // its carriage return has come, and no newline yet
  Time next_overwritten_ = Time::InfinitePast();
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_LINE_BUFFER_H_
