#include "lab/host/line_buffer.h"

#include <algorithm>

namespace psring {

void LineBuffer::Append(Time now, absl::string_view bytes, OnLine on_line) {
  while (!bytes.empty()) {
    const bool goes_on = bytes[0] != '\n' && bytes[0] != '\r';
    if (returned_ && goes_on) Overwrite(now, on_line);
    const size_t end = bytes.find_first_of("\r\n");
    const size_t wanted = std::min(end, bytes.size());
    const size_t taken = std::min(wanted, kMaxLineBytes - unfinished_.size());
    unfinished_.append(bytes.data(), taken);
    bytes.remove_prefix(taken);
    if (taken < wanted) {  // full
      Finish(on_line);
    } else if (end != absl::string_view::npos) {
      returned_ = bytes[0] == '\r';
      bytes.remove_prefix(1);
      if (returned_) continue;
      on_line(unfinished_);
      unfinished_.clear();
    }
  }
}

void LineBuffer::Overwrite(Time now, OnLine on_line) {
  returned_ = false;
  if (!unfinished_.empty() && now >= next_overwritten_) {
    next_overwritten_ = now + kOverwrittenEvery;
    on_line(unfinished_);
  }
  unfinished_.clear();
}

void LineBuffer::Finish(OnLine on_line) {
  returned_ = false;
  if (unfinished_.empty()) return;
  on_line(unfinished_);
  unfinished_.clear();
}

}  // namespace psring
