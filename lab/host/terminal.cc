#include "lab/host/terminal.h"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/clock.h"
#include "common/colours.h"

namespace psring {
namespace {

constexpr absl::Duration kLastPatience = absl::Seconds(1);

}  // namespace

int TerminalColumns(FILE* out) {
  if (!IsTerminal(out)) return 0;
  winsize size = {};
  if (ioctl(fileno(out), TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return size.ws_col;
}

std::string ProgressBar(double share, int width) {
  const int filled = static_cast<int>(std::clamp(share, 0.0, 1.0) * width);
  return absl::StrCat("[", std::string(filled, '#'),
                      std::string(width - filled, '.'), "]");
}

LiveBlock::LiveBlock(FILE* out, int columns) : out_(out), columns_(columns) {
  const int fd = fileno(out);
  if (fd >= 0) writer_ = std::make_unique<TryWriter>(fd);
}

LiveBlock::~LiveBlock() { Flush(kLastPatience); }

void LiveBlock::Print(absl::string_view text) {
  Write(absl::StrCat(Erased(), text, Drawn()));
}

void LiveBlock::Draw(std::vector<std::string> lines) {
  // A reader that comes back shall not see all that it has missed of the block,
  // but shall not find it left there either.
  if (!live() || (!left_.empty() && !lines.empty())) return;
  // A line that wraps could not be redrawn.
  for (std::string& line : lines)
    line.resize(std::min<size_t>(line.size(), columns_ - 1));
  if (lines == lines_) return;
  const std::string erased = Erased();
  lines_ = std::move(lines);
  Write(absl::StrCat(erased, Drawn()));
}

std::string LiveBlock::Erased() const {
  // The block's first line, and all that is below its start.
  return lines_.empty() ? ""
                        : absl::StrCat("\033[", lines_.size(), "A\r\033[J");
}

std::string LiveBlock::Drawn() const {
  std::string text;
  for (const std::string& line : lines_) absl::StrAppend(&text, line, "\n");
  return text;
}

void LiveBlock::Write(absl::string_view text) {
  if (text.empty() || closed_) return;
  if (writer_ == nullptr) {
    fwrite(text.data(), 1, text.size(), out_);
    fflush(out_);
    return;
  }
  absl::StrAppend(&left_, text);
  Flush();
}

bool LiveBlock::Flush(absl::Duration patience) {
  const Time end = Now() + patience;
  while (!left_.empty()) {
    const ssize_t written = writer_->Write(left_);
    if (written < 0) {
      closed_ = errno == EPIPE || errno == EIO;
      left_.clear();
    } else {
      left_.erase(0, static_cast<size_t>(written));
    }
    if (left_.empty()) break;
    const absl::Duration rest = end - Now();
    if (rest <= absl::ZeroDuration() || !writer_->Await(rest)) return false;
  }
  return true;
}

bool LiveBlock::HasReader() const {
  pollfd item = {writer_ == nullptr ? -1 : fileno(out_), 0, 0};
  return poll(&item, 1, 0) == 0 || (item.revents & (POLLERR | POLLHUP)) == 0;
}

void LiveBlock::Close() {
  closed_ = true;
  left_.clear();
}

int LiveBlock::blocked_fd() const { return left_.empty() ? -1 : fileno(out_); }

}  // namespace psring
