// Cuts a stream of bytes into lines.
#ifndef PSRING_LAB_HOST_LINE_BUFFER_H_
#define PSRING_LAB_HOST_LINE_BUFFER_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace psring {

class LineBuffer {
 public:
  using OnLine = absl::FunctionRef<void(absl::string_view)>;

  // A longer line is cut, so that a stream without newlines stays small.
  static constexpr size_t kMaxLineBytes = 64 * 1024;

  // Calls `on_line` for every line that `bytes` completes, without its newline
  // (or carriage return and newline).
  void Append(absl::string_view bytes, OnLine on_line);

  // The stream has ended: what came after the last newline is a line too.
  void Finish(OnLine on_line);

 private:
  std::string unfinished_;
};

}  // namespace psring

#endif  // PSRING_LAB_HOST_LINE_BUFFER_H_
