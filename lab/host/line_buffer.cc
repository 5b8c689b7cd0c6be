#include "lab/host/line_buffer.h"

#include <algorithm>

#include "absl/strings/strip.h"

namespace psring {

void LineBuffer::Append(absl::string_view bytes, OnLine on_line) {
  while (!bytes.empty()) {
    const size_t newline = bytes.find('\n');
    const bool complete = newline != absl::string_view::npos;
    const size_t wanted = complete ? newline : bytes.size();
    const size_t taken = std::min(wanted, kMaxLineBytes - unfinished_.size());
    unfinished_.append(bytes.data(), taken);
    bytes.remove_prefix(taken);
    if (taken < wanted) {  // full
      Finish(on_line);
    } else if (complete) {
      bytes.remove_prefix(1);
      on_line(absl::StripSuffix(unfinished_, "\r"));
      unfinished_.clear();
    }
  }
}

void LineBuffer::Finish(OnLine on_line) {
  if (unfinished_.empty()) return;
  on_line(unfinished_);
  unfinished_.clear();
}

}  // namespace psring
